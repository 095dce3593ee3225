"""The result set on disk: whole parts or none, resume, refusals, damage, and merging."""

import json
import os
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import refuses

from ntkscore.errors import InputError
from ntkscore.results.atomic import create
from ntkscore.results.parquet import ORDER, to_table
from ntkscore.results.result_set import CELL, ResultSet, provenance
from ntkscore.results.rows import VARYING

CONFIGURATION = {
    "samples": 50,
    "attack": {"name": "fgsm", "rho": 8 / 255},
    "betas": (0.25, 0.5),
    "data": {"name": "cifar10", "checksum": "c58f"},
}
COLUMNS = (*CELL, *VARYING)
"""The columns on disk."""
KERNELS = [
    ("clean", "trace", None),
    ("clean", "loss", None),
    ("joint_robust", "trace", 0.5),
    ("joint_robust", "trace", 0.25),
]


def unit(cell: int, seed: int = 0, offset: float = 0.0, status: str = "ok") -> list[dict]:
    """The rows of one cell at one seed, out of order on purpose."""
    common = {
        "cell": cell,
        "string": f"string {cell}",
        "seed": seed,
        "rho": 8 / 255,
        "steps": 1,
        "step_size": 8 / 255,
        "status": status,
    }
    return [
        {
            **common,
            "kernel": kernel,
            "score": score,
            "beta": beta,
            "value": np.nan if status != "ok" else 100.0 * cell + 10 * seed + i + offset,
        }
        for i, (kernel, score, beta) in enumerate(KERNELS)
    ]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "first"


@pytest.fixture
def new(directory: Path) -> ResultSet:
    return ResultSet.create_or_resume(directory, CONFIGURATION).record({"host": "a"})


def parts(directory: Path) -> list[Path]:
    return sorted(directory.glob("part-*.parquet"))


def test_a_part_has_exactly_the_documented_columns(new, directory):
    new.append(unit(1))
    schema = pq.read_schema(parts(directory)[0])
    assert " ".join(schema.names) == (
        "cell string seed rho steps step_size beta kernel score value status"
    )
    assert " ".join(str(field.type) for field in schema) == (
        "int64 string int64 double int32 double double string string double string"
    )
    assert [field.name for field in schema if field.nullable] == ["beta"]


def test_rows_come_back_sorted_and_typed(new):
    rows = [*unit(7), *unit(3, seed=1), *unit(3)]
    new.append(rows)
    frame = new.read()
    expected = pd.DataFrame(rows).sort_values(["cell", *ORDER], ignore_index=True)
    measured = frame.drop(columns=["samples", "attack", "data"])
    pd.testing.assert_frame_equal(measured, expected[measured.columns], check_dtype=False)
    assert frame["cell"].dtype == frame["seed"].dtype == np.int64
    assert frame["steps"].dtype == np.int32
    assert frame["beta"].dtype == np.float64
    assert frame["beta"].isna().sum() == 6


@given(
    st.lists(
        st.floats(width=64) | st.just(float("nan")), min_size=len(KERNELS), max_size=len(KERNELS)
    )
)
def test_no_value_becomes_null_or_changes(values):
    rows = [{**row, "value": value} for row, value in zip(unit(1), values, strict=True)]
    table = to_table(pd.DataFrame(rows), CELL)
    assert table["value"].null_count == 0
    np.testing.assert_array_equal(table["value"].to_numpy(), values)


def test_failed_value_is_nan_and_absent_beta_is_null_on_disk(new, directory):
    new.append(unit(4, status="not_finite"))
    table = pq.read_table(parts(directory)[0])
    assert tuple(table.column_names) == COLUMNS
    assert (table["value"].null_count, table["beta"].null_count) == (0, 2)
    assert new.read()["value"].isna().all()
    assert new.finished() == {(4, 0)}


def test_rows_may_be_a_frame_with_columns_in_any_order(new):
    new.append(pd.DataFrame(unit(4))[sorted(COLUMNS)])
    assert [name for name in new.read().columns if name in COLUMNS] == list(COLUMNS)


def test_an_empty_set_reads_as_an_empty_frame_with_the_same_types(new):
    new.append([])
    empty = new.read()
    assert new.finished() == set()
    new.append(unit(1))
    assert len(empty) == 0
    pd.testing.assert_series_equal(empty.dtypes, new.read().dtypes)


def test_rows_with_other_columns_are_refused(new, directory):
    rows = [{**row, "extra": 1} for row in unit(1)]
    for row in rows:
        del row["kernel"]
    with refuses(["kernel"], ["extra"]):
        new.append(rows)
    assert parts(directory) == []


def test_rows_of_another_type_are_refused(new, directory):
    for column, wanted, bad in (
        ("steps", "int32", "many"),
        ("steps", "int32", 2.5),
        ("cell", "int64", "x"),
        ("value", "double", "x"),
    ):
        with refuses(expected=(column, wanted)):
            new.append([{**row, column: bad} for row in unit(1)])
    assert parts(directory) == []


def test_rows_with_gaps_are_refused(new):
    with refuses(4, expected="status"):
        new.append([{**row, "status": None} for row in unit(1)])


def test_run_json_holds_configuration_and_session(new, directory):
    run = json.loads((directory / "run.json").read_text())
    assert run["configuration"] == json.loads(json.dumps(CONFIGURATION))
    (session,) = directory.glob("session-*.json")
    assert json.loads(session.read_text()) == {"host": "a"}


def test_provenance_names_versions_and_platform():
    record = provenance({"devices": ["cpu"]})
    assert record["packages"]["pyarrow"] == pa.__version__
    assert record["devices"] == ["cpu"]
    assert {"time", "python", "platform"} <= set(record)
    json.dumps(record)


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path):
    whole = ResultSet.create_or_resume(tmp_path / "whole", CONFIGURATION)
    whole.append([row for cell in (5, 1, 9) for row in unit(cell)])
    for cell in (9, 1, 5):
        broken = ResultSet.create_or_resume(tmp_path / "broken", CONFIGURATION)
        broken.append(unit(cell))
    pd.testing.assert_frame_equal(broken.read(), whole.read())


def test_another_configuration_is_refused_with_every_difference(new, directory):
    before = (directory / "run.json").read_bytes()
    other = {
        "samples": 32,
        "attack": {"name": "fgsm", "rho": 0.5, "steps": 1},
        "betas": [0.25, 0.5],
        "data": {"name": "cifar10", "checksum": "ffff"},
    }
    told = ("samples", 50, 32, "attack.rho", 8 / 255, 0.5, "data.checksum", "c58f", "ffff")
    for use in (ResultSet.create_or_resume, ResultSet.check):
        with refuses(*told, "attack.steps", 1, expected=directory, remedy="--out") as caught:
            use(directory, other)
        assert re.search(".*".join(map(re.escape, map(str, told))), str(caught.value))
    assert (directory / "run.json").read_bytes() == before


def test_a_directory_that_fits_is_left_alone(new, directory):
    before = (directory / "run.json").read_bytes()
    ResultSet.check(directory, CONFIGURATION)
    assert (directory / "run.json").read_bytes() == before
    ResultSet.check(directory / "new", CONFIGURATION)
    assert not (directory / "new").exists()


def test_a_creation_that_was_killed_can_be_repeated(directory):
    directory.mkdir(parents=True)
    (directory / ".run.json.1234.tmp").write_text('{"conf')
    ResultSet.create_or_resume(directory, CONFIGURATION)
    assert ResultSet.open(directory).finished() == set()


def test_a_file_or_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with refuses(tmp_path / "file", expected=path):
            ResultSet.create_or_resume(path, CONFIGURATION)


@pytest.mark.skipif(os.geteuid() == 0, reason="root ignores permissions")
def test_a_directory_without_write_permission_is_refused(directory):
    directory.mkdir(parents=True)
    directory.chmod(0o500)
    with refuses(directory, "Permission denied"):
        ResultSet.create_or_resume(directory, CONFIGURATION)


def test_a_directory_that_goes_away_is_reported_by_append(new, directory):
    directory.rename(directory.with_name("moved"))
    with refuses(directory, "No such file or directory"):
        new.append(unit(1))


def test_opening_what_is_not_a_result_set_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "missing"):
        with refuses(path, expected="run.json"):
            ResultSet.open(path)


@pytest.mark.parametrize(
    "content", [b"", b'{"configuration": {', b"[]", b'{"configuration": {}}', b"\xff\xfe",
                b'{"configuration": [], "sessions": []}']
)  # fmt: skip
def test_a_damaged_run_json_is_refused(new, directory, content):
    (directory / "run.json").write_bytes(content)
    with refuses(directory / "run.json", remedy="--out"):
        ResultSet.open(directory)
    with refuses(directory / "run.json", remedy="--out"):
        ResultSet.create_or_resume(directory, CONFIGURATION)
    assert (directory / "run.json").read_bytes() == content


def cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def foreign(_: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"cell": [1]}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize("damage", [cut, foreign, lambda _: b""])
def test_a_damaged_part_is_named_and_deleting_it_loses_only_its_cells(new, directory, damage):
    new.append(unit(1))
    new.append(unit(2))
    whole = new.read()
    bad = parts(directory)[0]
    bad.write_bytes(damage(bad.read_bytes()))
    for use in (new.read, new.finished, new.compact):
        with refuses(bad, expected="part"):
            use()
    bad.unlink()
    (lost,) = {(1, 0), (2, 0)} - new.finished()
    new.append(unit(lost[0]))
    pd.testing.assert_frame_equal(new.read(), whole)


def test_a_flipped_bit_that_still_decodes_is_noticed(new, directory):
    new.append(unit(1))
    (part,) = parts(directory)
    content, whole = part.read_bytes(), pq.read_table(part)
    column = pq.ParquetFile(part).metadata.row_group(0).column(COLUMNS.index("value"))
    start = column.data_page_offset
    silent = 0
    for at in range(start, start + column.total_compressed_size):
        part.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        try:
            changed = not pq.read_table(part).equals(whole)
        except (pa.ArrowException, OSError):
            continue
        if changed:
            silent += 1
            with refuses("CRC", expected="part"):
                new.read()
    assert silent > 0


def test_a_part_that_cannot_be_read_is_not_called_damaged(new, directory):
    (directory / "part-1-a.parquet").mkdir()
    with refuses(directory / "part-1-a.parquet", expected="file"):
        new.read()


def test_parts_that_keep_vanishing_end_in_an_error(new, directory):
    (directory / "part-1-a.parquet").symlink_to(directory / "nowhere")
    with refuses(expected=("parts", directory)):
        new.read()


APPEND_AND_DIE = """
import os, signal, sys
from ntkscore.results.result_set import ResultSet
sys.path[:0] = {tests!r}
from test_result_set import CONFIGURATION, unit

run = ResultSet.create_or_resume({directory!r}, CONFIGURATION)
run.append(unit(1))
os.{call} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
run.append(unit(2))
"""


@pytest.mark.slow
@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_kill_in_the_middle_of_append_leaves_the_earlier_parts(directory, call):
    script = APPEND_AND_DIE.format(
        tests=[str(folder) for folder in Path(__file__).parents[:2]],
        directory=str(directory),
        call=call,
    )
    ended = subprocess.run([sys.executable, "-c", script], cwd=Path(__file__).parents[2])
    assert ended.returncode == -9
    assert len(list(directory.glob(".part-*.tmp"))) == 1
    resumed = ResultSet.create_or_resume(directory, CONFIGURATION)
    assert resumed.finished() == {(1, 0)}
    resumed.append(unit(2))
    assert resumed.read()["cell"].to_list() == [1] * 4 + [2] * 4


def test_a_failed_write_leaves_no_temporary(new, directory, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refuses(directory, "No space left on device"):
        new.append(unit(1))
    names = sorted(os.listdir(directory))
    assert [name.partition("-")[0] for name in names] == ["run.json", "session"]


def test_only_old_temporaries_are_removed_on_resume(new, directory):
    for name, age in ((".part-1-old.parquet.a.tmp", 7200), (".part-1-new.parquet.b.tmp", 60)):
        (directory / name).write_text("half")
        then = time.time() - age
        os.utime(directory / name, (then, then))
    assert ResultSet.create_or_resume(directory, CONFIGURATION).finished() == set()
    assert [path.name for path in directory.glob("*.tmp")] == [".part-1-new.parquet.b.tmp"]


def test_threads_append_and_resume_at_once(directory):
    def work(seed: int) -> None:
        mine = ResultSet.create_or_resume(directory, CONFIGURATION).record({"seed": seed})
        for cell in range(5):
            mine.append(unit(cell, seed))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    both = ResultSet.open(directory)
    assert both.finished() == {(cell, seed) for cell in range(5) for seed in range(8)}
    assert len(both.read()) == 8 * 5 * len(KERNELS)
    assert sorted(session["seed"] for session in both.sessions) == list(range(8))


def test_of_a_unit_written_twice_the_first_part_counts_whole(new, directory, monkeypatch):
    for pid, offset in ((20, 0.0), (10, 0.5)):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        new.append([*unit(1, offset=offset), *unit(pid, offset=offset)])
    frame = new.read()
    assert frame.groupby("cell")["value"].first().mod(1).to_dict() == {1: 0.5, 10: 0.5, 20: 0.0}
    assert len(frame) == 3 * len(KERNELS)


def test_compaction_keeps_every_row(new, directory):
    new.compact()
    assert parts(directory) == []
    for cell in (3, 1, 2):
        new.append(unit(cell, status="ok" if cell > 1 else "constant"))
    before = new.read()
    for _ in range(2):
        new.compact()
        assert len(parts(directory)) == 1
        pd.testing.assert_frame_equal(new.read(), before)
    new.append(unit(4))
    new.compact()
    assert new.finished() == {(1, 0), (2, 0), (3, 0), (4, 0)}


@pytest.mark.parametrize("deleted", [0, 1, 2])
def test_compaction_killed_while_deleting_repeats_nothing(new, directory, monkeypatch, deleted):
    # Two versions of cell 1: which one counts must not depend on what is deleted already.
    for pid, offset in ((10, 0.5), (20, 0.0)):
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        new.append(unit(1, offset=offset))
    before = new.read()
    saved = {path: path.read_bytes() for path in parts(directory)}
    new.compact()
    for path in list(saved)[deleted:]:
        path.write_bytes(saved[path])
    pd.testing.assert_frame_equal(new.read(), before)


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_is_there_is_not_created_again(links, tmp_path, monkeypatch):
    if not links:

        def link(*_):
            raise PermissionError(1, "Operation not permitted")

        monkeypatch.setattr(os, "link", link)
    for content in (b"first", b"second"):
        create(tmp_path / "run.json", content)
    assert (tmp_path / "run.json").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["run.json"]


def test_of_those_who_start_at_once_with_other_choices_one_goes_on(directory):
    def start(samples: int) -> bool:
        try:
            ResultSet.create_or_resume(directory, {**CONFIGURATION, "samples": samples})
        except InputError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(8))) == 1
