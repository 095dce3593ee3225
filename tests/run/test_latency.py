"""Latencies of networks on this machine, in the form of measured costs."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tiny import IMAGES, invoke, refused, refuses

import ntkscore
from cells import NASBench201
from cells.residual import Residual
from ntkscore.api import latency

WIDE, NARROW = Residual(width=512), Residual(width=8)


def test_more_work_takes_longer_and_more_images_are_said() -> None:
    wide = ntkscore.measure_latency("0101010101", space=WIDE, batch=32, repeats=5)
    narrow = ntkscore.measure_latency("01", space=NARROW, batch=32, repeats=5)
    assert list(wide) == ["cpu_latency_b32", "cpu_latency_spread_b32"]
    assert wide.index.name == "skips" and list(wide.index) == ["0101010101"]
    assert wide["cpu_latency_b32"].item() > narrow["cpu_latency_b32"].item() > 0
    assert narrow["cpu_latency_spread_b32"].item() >= 0


def test_what_is_timed_is_the_network_that_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def timed(call: object, repeats: int) -> tuple[float, float]:
        seen.append(call())
        return 1.0, 0.0

    monkeypatch.setattr(latency, "timed", timed)
    space = NASBench201(channels=4, cells_per_stage=1)
    ntkscore.measure_latency("210021", space=space, batch=3)
    trained = space.trained().on(ntkscore.load_images("synthetic").task)
    network = trained.trainable("210021")
    images = jnp.zeros((3, 32, 32, 3))
    logits = network.evaluate(network.params, network.statistics, images)
    np.testing.assert_allclose(seen[0], logits, rtol=1e-4, atol=1e-5)


def test_a_file_goes_on_and_is_costs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, told = tmp_path / "new" / "mine.csv", []
    ntkscore.measure_latency(
        ["01", "0110"], space=NARROW, repeats=2, out=file, report=lambda *step: told.append(step)
    )
    assert told == [(1, 2), (2, 2)]
    before = ntkscore.load_costs(file)
    count = []
    monkeypatch.setattr(latency, "timed", lambda call, repeats: count.append(1) or (9.0, 0.5))
    found = ntkscore.measure_latency(["0110", "011"], space=NARROW, out=file)
    assert len(count) == 1 and found.loc["011"].tolist() == [9.0, 0.5]
    assert found.loc["0110"].tolist() == before.loc["0110"].tolist()
    assert list(ntkscore.load_costs(file).index) == ["01", "0110", "011"]
    run = ntkscore.score(["01", "0110"], IMAGES, space=NARROW)
    ranked = run.with_costs(ntkscore.load_costs(file)).rank("cpu_latency")
    assert ranked["cpu_latency"].is_monotonic_increasing
    with refuses("cpu_latency", expected=(file, "cpu_latency_b2")):
        ntkscore.measure_latency("01", space=NARROW, batch=2, out=file)
    with refuses("width 8", expected=(file, "width 9")):
        ntkscore.measure_latency("01", space=Residual(width=9), out=file)
    with refuses(expected="/dev/full"):
        ntkscore.measure_latency("01", space=NARROW, out="/dev/full")
    # That line alone is no row; a name may have its sign.
    (tmp_path / "own.csv").write_text("network,ms\nnet#1,3\n")
    assert ntkscore.load_costs(tmp_path / "own.csv").loc["net#1", "ms"] == 3
    # A run that was killed may leave half a line.
    whole = file.read_text()
    file.write_text(whole[:-4])
    found = ntkscore.measure_latency(["01", "0110", "011"], space=NARROW, out=file)
    assert len(count) == 2 and len(found) == 3
    assert file.read_text().splitlines()[2:] == whole.splitlines()[2:]


def test_networks_of_ones_own_and_refusals(tmp_path: Path) -> None:
    file = tmp_path / "networks.py"
    file.write_text(
        "import jax.numpy as jnp\nfrom ntkscore import Model\n\n\n"
        "def networks(images):\n"
        "    weights = jnp.ones((images[0].size, 10))\n"
        "    return {'linear': Model(lambda w, x: x.reshape(len(x), -1) @ w, weights)}\n"
    )
    printed = invoke("measure-latency", file, "--repeats", 2, "--format", "csv").stdout
    assert printed.splitlines()[0] == "network,cpu_latency,cpu_latency_spread"
    assert printed.splitlines()[1].startswith("linear,")
    # Their weights may have changed under the name: they are timed again.
    out = ("--repeats", 2, "--out", tmp_path / "own.csv")
    for _ in range(2):
        invoke("measure-latency", file, *out)
        assert list(ntkscore.load_costs(tmp_path / "own.csv").index) == ["linear"]
    refused("expected a target of a100", "measure-latency", "323133", "--target", "abacus")
    refused("expected a path on this machine", "measure-latency", "323133", "--out", "s3://a/b.csv")
    with refuses(0, expected=("batch", 1)):
        ntkscore.measure_latency("01", space=NARROW, batch=0)


def test_a_stopped_command_says_where_it_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([(1.0, 0.5)])

    def timed(call: object, repeats: int) -> tuple[float, float]:
        try:
            return next(found)
        except StopIteration:
            raise KeyboardInterrupt from None

    monkeypatch.setattr(latency, "timed", timed)
    file = tmp_path / "mine.csv"
    command = ("measure-latency", "01,0110", "--space", "residual", "--width", 8, "--out", file)
    ended = invoke(*command, code=130)
    said = f"stopped; what was timed is in {file}, and the same command goes on from there"
    assert ended.stderr.splitlines() == [said]
    assert list(ntkscore.load_costs(file).index) == ["01"]
