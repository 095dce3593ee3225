"""What a run leaves when it is told to stop, and where its store is full or slow."""

import signal
import time
from pathlib import Path

import pytest
from tiny import (
    OPTIONS,
    RESIDUAL_OPTIONS,
    invoke,
    rows_in,
    same_rows,
    start,
)

from ntkscore.paths import place
from ntkscore.results.atomic import writing_to
from ntkscore.results.result_set import ResultSet
from ntkscore.results.store import Bucket, Folder, store_at


def parts(out: str | Path) -> list[str]:
    return [name for name in store_at(place(out)).names() if name.startswith("part-")]


@pytest.mark.thorough
def test_a_process_that_is_told_to_stop_writes_what_it_has(tmp_path: Path) -> None:
    out = tmp_path / "run"
    process = start("score", "random:500", "--out", out, *OPTIONS)
    deadline = time.monotonic() + 300
    while not (out.is_dir() and parts(out)):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"{len(ResultSet.open(out).finished())} networks are on disk" in told


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "bucket"])
def test_a_store_may_be_full_or_slow(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails ends the run, which goes on later; one that takes long is waited for."""
    networks = ["all", *RESIDUAL_OPTIONS, "--batch", "1"]
    invoke("score", "--out", tmp_path / "alone", *networks)
    out = str(tmp_path / "run") if kind == "folder" else f"memory://{tmp_path.name}/run"
    store = type(store_at(place(out)))
    monkeypatch.setattr(store, "part_seconds", 0.0)
    write, written = store.write, []

    def full(self: Folder | Bucket, name: str, content: bytes) -> None:
        if name.startswith("part-"):
            written.append(name)
        with self._reached() if isinstance(self, Bucket) else writing_to(self.place):
            if len(written) > 1:
                raise OSError(28, "No space left on device")
        write(self, name, content)

    def slow(self: Folder | Bucket, name: str, content: bytes) -> None:
        time.sleep(0.05)
        write(self, name, content)

    monkeypatch.setattr(store, "write", full)
    told = invoke("score", "--out", out, *networks, code=2).stderr
    assert f"but {out} cannot be" in told and "No space left on device" in told
    total = len(ResultSet.open(tmp_path / "alone").finished())
    assert 0 < len(ResultSet.open(out).finished()) < total
    monkeypatch.setattr(store, "write", slow)
    invoke("score", "--out", out, *networks)
    same_rows(rows_in(out), rows_in(tmp_path / "alone"))
