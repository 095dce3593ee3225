"""What lies on disk, now and before version 0.2, and that a reader cannot tell the two apart."""

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tiny import RESIDUAL, SPACE

from cells import Cell
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, load
from ntkscore.errors import InputError
from ntkscore.results.result_set import CELL, ResultSet
from ntkscore.results.rows import VARYING
from ntkscore.run.job import Job

RECORDED = Path(__file__).parents[2] / "experiments" / "results"
OLD_SCHEMA = pa.schema(
    [
        pa.field(name, kind, name == "beta")
        for name, kind in {
            "cell": pa.int32(),
            "string": pa.string(),
            "seed": pa.int64(),
            "dataset": pa.string(),
            "samples": pa.int32(),
            "channels": pa.int32(),
            "cells_per_stage": pa.int32(),
            "init": pa.string(),
            "bn": pa.string(),
            "output": pa.string(),
            "parameters": pa.string(),
            "attack": pa.string(),
            "rho": pa.float64(),
            "steps": pa.int32(),
            "step_size": pa.float64(),
            "beta": pa.float64(),
            "kernel": pa.string(),
            "score": pa.string(),
            "value": pa.float64(),
            "status": pa.string(),
        }.items()
    ]
)
"""The columns of a part before version 0.2."""
SINCE = ("space", "norm")
"""Choices that were not recorded before version 0.2."""
CONFIG = Config(samples=4)
TEXTS = {"dataset", "space", "init", "bn", "output", "parameters", "attack", "norm"}


@pytest.fixture(scope="module")
def data() -> ImageSet:
    return load("synthetic")


@pytest.fixture(scope="module")
def configuration(data: ImageSet) -> dict[str, object]:
    return Job.of(data, CONFIG, space=SPACE).configuration


def rows_of(identity: dict[str, str | int], seed: int = 0) -> pd.DataFrame:
    """Rows of one network as a run makes them: two kernels, one of them failed."""
    common = {**identity, "seed": seed, "rho": 8 / 255, "steps": 1, "step_size": 8 / 255}
    clean = {"beta": None, "kernel": "clean", "score": "trace", "value": 3.0 + seed, "status": "ok"}
    failed = {"beta": 0.5, "kernel": "joint_clean", "score": "trace", "value": np.nan}
    return pd.DataFrame([common | clean, common | failed | {"status": "not_finite"}])


def rows_of_cells(indices: Iterable[int]) -> pd.DataFrame:
    cells = map(Cell, indices)
    return pd.concat([rows_of({"cell": c.index, "string": c.string}) for c in cells])


def write_old(directory: Path, configuration: dict[str, object], *parts: pd.DataFrame) -> None:
    """A directory as version 0.1 wrote it."""
    directory.mkdir()
    old = {name: value for name, value in configuration.items() if name not in SINCE}
    run = {"configuration": old, "sessions": [{"packages": {"ntkscore": "0.1.0"}}]}
    (directory / "run.json").write_text(json.dumps(run, indent=2))
    for i, rows in enumerate(parts):
        constants = {name: old[name] for name in OLD_SCHEMA.names if name in old}
        known = {name: [value] * len(rows) for name, value in constants.items()}
        columns = {**known, **{name: rows[name].to_list() for name in rows}}
        table = pa.table([columns[name] for name in OLD_SCHEMA.names], OLD_SCHEMA)
        pq.write_table(table, directory / f"part-{i + 1}-a.parquet", write_page_checksum=True)


def parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("part-*.parquet"))


@pytest.fixture
def old(tmp_path: Path, configuration: dict[str, object]) -> Path:
    write_old(tmp_path / "old", configuration, rows_of_cells([2581, 7]), rows_of_cells([0]))
    return tmp_path / "old"


@pytest.fixture
def new(tmp_path: Path, configuration: dict[str, object]) -> Path:
    results = ResultSet.create_or_resume(tmp_path / "new", configuration, {})
    results.append(rows_of_cells([2581, 7]))
    results.append(rows_of_cells([0]))
    return tmp_path / "new"


def test_an_old_directory_reads_like_a_new_one(old: Path, new: Path) -> None:
    before, after = ResultSet.open(old), ResultSet.open(new)
    assert before.identity == after.identity == CELL
    assert before.configuration == after.configuration
    assert before.finished() == after.finished() == {(0, 0), (7, 0), (2581, 0)}
    pd.testing.assert_frame_equal(before.read(), after.read(), check_like=True)
    assert len(pq.read_schema(parts(old)[0]).names) == 20


def test_an_old_directory_is_resumed_and_compacted(
    old: Path, new: Path, configuration: dict[str, object]
) -> None:
    for directory in (old, new):
        results = ResultSet.create_or_resume(directory, configuration, {"host": "b"})
        results.append(rows_of_cells([1462]))
        assert results.finished() == {(0, 0), (7, 0), (1462, 0), (2581, 0)}
    assert sorted(len(pq.read_schema(part).names) for part in parts(old)) == [11, 20, 20]
    mixed = ResultSet.open(old)
    expected = ResultSet.open(new).read()
    pd.testing.assert_frame_equal(mixed.read(), expected)
    mixed.compact()
    (merged,) = parts(old)
    assert pq.read_schema(merged).names == [*CELL, *VARYING]
    pd.testing.assert_frame_equal(ResultSet.open(old).read(), expected)
    run = json.loads((old / "run.json").read_text())
    assert (run["identity"], len(run["sessions"])) == (list(CELL), 2)
    assert run["configuration"]["space"] == "nasbench201"


def test_an_old_directory_refuses_what_it_was_not_made_with(
    old: Path, data: ImageSet, configuration: dict[str, object]
) -> None:
    with pytest.raises(InputError, match=r"\(norm: stored linf, asked l2\); choose another --out"):
        ResultSet.create_or_resume(old, configuration | {"norm": "l2"}, {})
    other = Job.of(data, CONFIG, space=RESIDUAL).configuration
    with pytest.raises(InputError, match="space: stored nasbench201, asked residual"):
        ResultSet.create_or_resume(old, other, {}, ("skips",))


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
    copy = ResultSet.create_or_resume(tmp_path / "copy", results.configuration, {})
    copy.append(results.read())
    pd.testing.assert_frame_equal(copy.read(), results.read())


def test_networks_may_be_known_by_a_text(tmp_path: Path, data: ImageSet) -> None:
    configuration = Job.of(data, CONFIG, space=RESIDUAL).configuration
    results = ResultSet.create_or_resume(tmp_path / "run", configuration, {}, ("skips",))
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
    results = ResultSet.create_or_resume(tmp_path / "run", {"widths": (8, 4), "note": None}, {})
    results.append(rows_of_cells([7]))
    read = results.read()
    assert set(read["widths"]) == {"[8, 4]"}
    assert read["note"].isna().all()
