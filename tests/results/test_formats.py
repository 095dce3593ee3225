"""What lies on disk, and that it reads as it was written."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny import RESIDUAL, SPACE, refuses

from cells.nasbench201 import Cell
from ntkscore.data.images import ImageSet, load_images
from ntkscore.results.result_set import CELL, ResultSet
from ntkscore.results.rows import VARYING
from ntkscore.run.scoring import Scoring

RECORDED = Path(__file__).parents[2] / "experiments" / "results"
TEXTS = {"dataset", "space", "init", "bn", "output", "parameters", "attack", "norm"}


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return load_images("synthetic", samples=4)


@pytest.fixture(scope="module")
def configuration(data: ImageSet) -> dict[str, object]:
    return Scoring.of(data, space=SPACE).configuration


def rows_of(identity: dict[str, str | int], seed: int = 0) -> pd.DataFrame:
    """Rows of one network as a run makes them: two kernels, one of them failed."""
    common = {**identity, "seed": seed, "rho": 8 / 255, "steps": 1, "step_size": 8 / 255}
    clean = {"beta": None, "kernel": "clean", "score": "trace", "value": 3.0 + seed, "status": "ok"}
    failed = {"beta": 0.5, "kernel": "joint_clean", "score": "trace", "value": np.nan}
    return pd.DataFrame([common | clean, common | failed | {"status": "not_finite"}])


def rows_of_cells(indices: Iterable[int]) -> pd.DataFrame:
    cells = map(Cell, indices)
    return pd.concat([rows_of({"cell": c.index, "string": c.string}) for c in cells])


def parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("part-*.parquet"))


@pytest.fixture
def new(tmp_path: Path, configuration: dict[str, object]) -> Path:
    results = ResultSet.create_or_resume(tmp_path / "new", configuration)
    results.append(rows_of_cells([2581, 7]))
    results.append(rows_of_cells([0]))
    return tmp_path / "new"


def test_a_directory_from_before_version_0_2_is_refused(new: Path) -> None:
    run = json.loads((new / "run.json").read_text())
    del run["identity"]
    run["sessions"] = []  # which had no files of their own
    (new / "run.json").write_text(json.dumps(run))
    with refuses(new, expected=0.2, remedy=0.3):
        ResultSet.open(new)


def test_a_part_with_a_narrower_index_joins_the_others(new: Path) -> None:
    expected = ResultSet.open(new).read()
    old, *_ = parts(new)
    table = pq.read_table(old)
    narrow = table.set_column(0, "cell", table["cell"].cast(pa.int32()))
    pq.write_table(narrow, old, write_page_checksum=True)
    results = ResultSet.open(new)
    assert results.finished() == {(0, 0), (7, 0), (2581, 0)}
    results.compact()
    pd.testing.assert_frame_equal(results.read(), expected)


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["conventions/tiny", "conventions/tiny-bn-batch", "radii"])
def test_the_repositorys_recordings_read_as_they_were_written(name: str) -> None:
    (part,) = parts(RECORDED / name)
    written = pq.read_table(part).to_pandas()
    read = ResultSet.open(RECORDED / name).read()
    assert len(read) == len(written)
    keys = ["cell", "seed", "kernel", "rho", "beta", "score"]
    written = written.sort_values(keys, ignore_index=True)
    for column in set(written.columns) - {"steps"}:
        assert read[column].tolist() == written[column].tolist() or column in ("value", "beta")
    for column in ("value", "beta", "steps"):
        np.testing.assert_array_equal(read[column], written[column])
    assert set(read["norm"]) == {"linf"} and set(read["space"]) == {"nasbench201"}


def test_on_disk_a_row_has_what_varies_and_a_frame_has_the_rest(new: Path) -> None:
    for part in parts(new):
        assert pq.read_schema(part).names == [*CELL, *VARYING]
    read = ResultSet.open(new).read()
    assert list(read.columns) == [
        *("cell", "string", "seed", "dataset", "space", "channels", "cells_per_stage", "init"),
        *("bn", "samples", "balanced", "output", "parameters", "attack", "random_start", "norm"),
        *("x64", "rho", "steps", "step_size", "beta", "kernel", "score", "value", "status"),
    ]
    categorical = {name for name in read if isinstance(read[name].dtype, pd.CategoricalDtype)}
    assert categorical == TEXTS
    assert set(read["channels"]) == {4} and not read["x64"].any()
    # The run's texts cost a byte for each row at most, and their one category.
    costs = read[sorted(TEXTS)].memory_usage(deep=True, index=False)
    assert (costs <= len(read) + 1000).all()


def test_rows_as_they_were_read_can_be_appended_again(new: Path, tmp_path: Path) -> None:
    results = ResultSet.open(new)
    copy = ResultSet.create_or_resume(tmp_path / "copy", results.configuration)
    copy.append(results.read())
    pd.testing.assert_frame_equal(copy.read(), results.read())


def test_networks_may_be_known_by_a_text(tmp_path: Path, data: ImageSet) -> None:
    configuration = Scoring.of(data, space=RESIDUAL).configuration
    results = ResultSet.create_or_resume(tmp_path / "run", configuration, ("skips",))
    for pattern in ("0110", "01"):
        results.append(rows_of({"skips": pattern}, seed=1))
    again = ResultSet.open(tmp_path / "run")
    assert again.identity == ("skips",)
    assert again.unit == ("skips", "seed")
    assert again.finished() == {("0110", 1), ("01", 1)}
    schema = pq.read_schema(parts(tmp_path / "run")[0])
    assert schema.names == ["skips", *VARYING]
    assert schema.field("skips").type == pa.string()
    again.compact()
    read = again.read()
    assert read["skips"].tolist() == ["01", "01", "0110", "0110"]
    assert read.columns[:2].tolist() == ["skips", "seed"]
    assert set(read["width"]) == {8} and set(read["space"]) == {"residual"}


def test_choices_that_are_lists_become_a_text(tmp_path: Path) -> None:
    results = ResultSet.create_or_resume(tmp_path / "run", {"widths": (8, 4), "note": None})
    results.append(rows_of_cells([7]))
    read = results.read()
    assert set(read["widths"]) == {"[8, 4]"}
    assert read["note"].isna().all()
