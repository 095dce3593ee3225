"""Results in a folder and in object storage: one contract, and refusals in a sentence."""

import json
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pandas as pd
import pytest
from results.test_result_set import CONFIGURATION, KERNELS, unit
from tiny import invoke, refused, refuses

from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.paths import is_url, local, place
from ntkscore.results.atomic import fcntl
from ntkscore.results.result_set import ResultSet
from ntkscore.results.store import Bucket, store_at

fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed: see the extra `cloud`")
MemoryFileSystem = fsspec.filesystem("memory").__class__

SMALL = SHIPPED / "small-synthetic"


@pytest.fixture(params=["folder", "memory"])
def out(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place for results that holds nothing yet."""
    return str(tmp_path / "run") if request.param == "folder" else memory()


def memory() -> str:
    return f"memory://{uuid.uuid4().hex}/run"


def copied(out: str) -> ResultSet:
    """A small run of the package, in another place."""
    run = ResultSet.open(SMALL)
    copy = ResultSet.create_or_resume(out, run.configuration, run.identity)
    copy.append(run.read())
    return copy


def test_a_text_or_a_path_names_a_folder_or_a_url(tmp_path: Path) -> None:
    assert place("s3://bucket/run/") == place(Path("s3://bucket/run")) == "s3://bucket/run"
    assert place(tmp_path.as_uri()) == tmp_path and place("runs/mine") == Path("runs/mine")
    assert not is_url("C:/runs") and not is_url("runs/s3:/mine") and not is_url("s3:")
    assert local("runs/mine") == Path("runs/mine")
    with refuses("s3://bucket/run"):
        local(Path("s3://bucket/run"))


def test_files_are_listed_read_replaced_and_deleted(out: str) -> None:
    store = store_at(place(out))
    assert store.names() == [] and store.read([]) == {}
    ResultSet.create_or_resume(out, CONFIGURATION)
    there = sorted(store.names())
    store.write("part-b", b"old")
    store.write("part-b", b"b")
    store.write("part-a", b"")
    assert sorted(store.names()) == sorted([*there, "part-a", "part-b"])
    assert list(store.read(["part-b", "part-a"]).items()) == [("part-b", b"b"), ("part-a", b"")]
    store.delete(["part-a", "part-b", "part-c"])
    assert sorted(store.names()) == there
    with pytest.raises(FileNotFoundError):
        store.read(["part-a"])


def test_a_run_is_made_continued_read_and_compacted(out: str) -> None:
    assert ResultSet.find(out) is None
    ResultSet.check(out, CONFIGURATION)
    with refuses(out, expected="run.json", remedy="`recorded`"):
        ResultSet.open(out)
    new = ResultSet.create_or_resume(out, CONFIGURATION).record({"host": "a"})
    for cell in (2, 1):
        new.append(unit(cell))
    again = ResultSet.create_or_resume(out, CONFIGURATION)
    for _ in range(2):  # once, however often a process comes back
        again = again.record({"host": "b"})
    assert again == ResultSet.open(out) == ResultSet.find(out)
    assert again.sessions == ({"host": "a"}, {"host": "b"})
    assert again.finished() == {(1, 0), (2, 0)}
    before = again.read()
    for _ in range(2):
        again.compact()
        assert len([n for n in store_at(place(out)).names() if n.startswith("part-")]) == 1
        pd.testing.assert_frame_equal(again.read(), before)


def test_what_belongs_to_another_is_refused_and_left_alone(out: str) -> None:
    ResultSet.create_or_resume(out, CONFIGURATION)
    for use in (ResultSet.check, ResultSet.create_or_resume):
        with refuses("samples", 50, 3):
            use(out, {**CONFIGURATION, "samples": 3})
    foreign = f"{out}/foreign"
    with fsspec.open(f"{foreign}/thesis.tex", "wb", auto_mkdir=True) as file:
        file.write(b"")
    for use in (ResultSet.check, ResultSet.create_or_resume):
        with refuses(foreign, expected="run.json", remedy="--out"):
            use(foreign, CONFIGURATION)
    assert store_at(place(foreign)).names() == ["thesis.tex"]


def test_a_damaged_file_is_named(out: str) -> None:
    new = ResultSet.create_or_resume(out, CONFIGURATION)
    new.append(unit(1))
    store = store_at(place(out))
    (part,) = (name for name in store.names() if name.startswith("part-"))
    store.write(part, store.read([part])[part][:-9])
    with refuses(f"{out}/{part}", expected="part"):
        new.read()
    store.write("run.json", b"{")
    with refuses(f"{out}/run.json", remedy="--out"):
        ResultSet.open(out)


def test_a_read_survives_a_compaction_in_between(out: str, monkeypatch: pytest.MonkeyPatch) -> None:
    new = ResultSet.create_or_resume(out, CONFIGURATION)
    for cell in (1, 2):
        new.append(unit(cell))
    before, store = new.read(), type(store_at(place(out)))
    read = store.read

    def compact_first(self: object, names: list[str]) -> dict[str, bytes]:
        monkeypatch.setattr(store, "read", read)
        new.compact()
        return read(self, names)

    monkeypatch.setattr(store, "read", compact_first)
    pd.testing.assert_frame_equal(new.read(), before)


def test_a_listing_that_missed_the_merged_part_is_taken_again(
    out: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = ResultSet.create_or_resume(out, CONFIGURATION)
    for cell in (1, 2):
        new.append(unit(cell))
    new.compact()
    store = type(store_at(place(out)))
    names, listings = store.names, iter([True, False, False, False])
    monkeypatch.setattr(store, "names", lambda self: [] if next(listings) else names(self))
    assert new.finished() == {(1, 0), (2, 0)}


def test_compactions_at_once_lose_no_row(out: str) -> None:
    new = ResultSet.create_or_resume(out, CONFIGURATION)

    def work(seed: int) -> None:
        for cell in range(6):
            new.append(unit(cell, seed))
            new.compact()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))
    assert new.finished() == {(cell, seed) for cell in range(6) for seed in range(4)}
    assert len(new.read()) == 24 * len(KERNELS)


def test_processes_that_start_at_once_leave_every_session(out: str) -> None:
    def start(host: int) -> ResultSet:
        return ResultSet.create_or_resume(out, CONFIGURATION).record({"host": host})

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(start, range(8)))
    sessions = ResultSet.open(out).sessions
    assert sorted(session["host"] for session in sessions) == list(range(8))


@pytest.mark.parametrize("able", [True, False])
def test_of_two_configurations_the_first_stays(able: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in a store that has no conditional writing, as far as it shows."""
    if not able:
        write = MemoryFileSystem.pipe_file

        def plain(self, path, value, mode="overwrite", **rest):
            if mode == "create":
                raise NotImplementedError
            return write(self, path, value, **rest)

        monkeypatch.setattr(MemoryFileSystem, "pipe_file", plain)
    out = memory()
    bucket = Bucket(out)
    bucket.create("run.json", b"a")
    bucket.create("run.json", b"b")
    assert bucket.read(["run.json"]) == {"run.json": b"a"}


def test_without_locks_of_the_file_system_rows_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    for cell in (1, 2):
        ResultSet.create_or_resume(tmp_path, CONFIGURATION).append(unit(cell))
    assert ResultSet.open(tmp_path).finished() == {(1, 0), (2, 0)}


@pytest.mark.thorough
def test_commands_read_a_url(tmp_path: Path) -> None:
    out = memory()
    rows = copied(out).read()
    keys = list(rows["cell"].unique()[:40])
    table = tmp_path / "mine.csv"
    table.write_text(
        "cell,cifar10#clean\n" + "".join(f"{k},0.{i + 10}\n" for i, k in enumerate(keys))
    )
    told = invoke("rank", out, "--format", "json", "--top", 3)
    assert json.loads(told.stdout) == json.loads(
        invoke("rank", SMALL, "--format", "json", "--top", 3).stdout
    )
    correlate = ("correlate", out, "--table", table, "--metric", "clean", "--resamples", 10)
    assert f"in {out}" in " ".join(invoke(*correlate).stdout.replace("\n", "").split())
    predict = ("--table", table, "--dataset", "cifar10")
    assert json.loads(invoke("predict", out, *predict, "--format", "json").stdout)
    page = tmp_path / "page.html"
    invoke("explore", out, "--out", page)
    assert "<title>run" in page.read_text()


def test_what_is_no_result_refuses_a_url(tmp_path: Path) -> None:
    url, page = "s3://bucket/run", tmp_path / "page.html"
    message = f"expected a path on this machine, got the URL {url}; only the results of score"
    refused(message, "train", "323133", "--out", url)
    refused(message, "choose", "recorded", "--out", url)
    refused(message, "explore", "recorded", "--out", url)
    refused(message, "explore", "recorded", "--out", page, "--table", url)
    refused(message, "rank", "recorded", "--plot", url)
    refused(message, "lookup", "323133", "--table", url)


def test_packages_that_are_missing_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    refused("got nowhere://b/run (Protocol not known: nowhere); write", "rank", "nowhere://b/run")
    ours = "run pip install 'ntkscore[cloud]'"
    for url, how in (("s3://b/run", ours), ("gs://b/run", "install what it names")):
        with monkeypatch.context() as without:
            for module in ("s3fs", "gcsfs"):
                without.setitem(sys.modules, module, None)
            known = sys.modules["fsspec.registry"].__dict__["_registry"]
            without.delitem(known, url[:2], raising=False)
            refused(how, "rank", url)
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "fsspec", None)
        for url in ("s3://b/run", "memory://run"):
            refused(ours, "rank", url)


@pytest.mark.slow
def test_a_bucket_of_s3_is_a_place_for_results(s3: str) -> None:
    bucket = Bucket(s3)
    bucket.create("run.json", b"a")
    bucket.create("run.json", b"b")
    assert bucket.read(["run.json"]) == {"run.json": b"a"}
    bucket.delete(["run.json", "none.json"])
    out = f"{s3}/below"
    test_a_run_is_made_continued_read_and_compacted(out)
    test_processes_that_start_at_once_leave_every_session(f"{s3}/sessions")
    test_compactions_at_once_lose_no_row(f"{s3}/compacted")
    for missing in ("s3://nowhere/run", f"{s3}/nowhere"):
        refused(f"expected a results directory with a run.json, but {missing}", "rank", missing)
    with refuses("s3://nowhere/run"):
        ResultSet.create_or_resume("s3://nowhere/run", CONFIGURATION)
