"""Networks of one's own, ranked by name."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import IMAGES, SPACE, invoke, refused, refuses, scored

import ntkscore
from ntkscore import Model
from ntkscore.candidates import POINTS, Candidates
from ntkscore.run import engine
from ntkscore.run.engine import Progress
from ntkscore.run.scoring import Scoring
from ntkscore.spaces import default_space, space_class
from ntkscore.training.sources import trained_networks

FILE = """
import jax, jax.numpy as jnp
from ntkscore import Model

def apply(weights, images):
    return jax.nn.relu(images.reshape(len(images), -1) @ weights[0]) @ weights[1]

def networks(images):
    size = images[0].size
    return {f"m{m}": Model(apply, [jnp.ones((size, m)), jnp.ones((m, 10))]) for m in (2, 4)}
"""


def apply(weights: list[jax.Array], images: jax.Array) -> jax.Array:
    return jax.nn.relu(images.reshape(len(images), -1) @ weights[0]) @ weights[1]


def network(width: int, seed: int = 0) -> Model:
    keys = jax.random.split(jax.random.key(seed))
    shapes = (3072, width), (width, 10)
    return Model(apply, [jax.random.normal(k, s) / 10 for k, s in zip(keys, shapes, strict=True)])


FEW = {"narrow": network(4), "wide": network(8)}


def test_networks_are_ranked_and_scored_as_alone(tmp_path: Path) -> None:
    mine = FEW
    run = ntkscore.score(mine, IMAGES, out=tmp_path)
    ranked = run.rank("params")
    assert list(ranked["network"]) == ["wide", "narrow"]
    assert list(ranked["params"]) == [3072 * 8 + 80, 3072 * 4 + 40]
    rows = run.rows
    assert set(rows["bn"]) == {"none"}
    pixels, labels = IMAGES.draw(0)
    alone = scored(mine["wide"], pixels, labels)
    both = rows[rows["network"] == "wide"].merge(alone, on=["kernel", "score", "beta"])
    assert len(both) == len(alone)
    np.testing.assert_allclose(both["value_x"], both["value_y"], rtol=1e-4, atol=1e-6)


def test_a_network_with_a_kernel_for_each_channel_is_scored_column_by_column() -> None:
    def apply(weights: list[jax.Array], images: jax.Array) -> jax.Array:
        order = "NHWC", "HWIO", "NHWC"
        how = {"dimension_numbers": order, "feature_group_count": 3}
        x = jax.lax.conv_general_dilated(images, weights[0], (1, 1), "SAME", **how)
        return jax.nn.relu(x).mean((1, 2)) @ weights[1]

    rng = np.random.default_rng(0)
    weights = [jnp.asarray(rng.normal(size=s), jnp.float32) for s in ((3, 3, 1, 3), (3, 4))]
    images, labels = rng.uniform(size=(4, 6, 6, 3)), np.arange(4)
    coupled = Model(apply, weights, coupled=True)
    rows = ntkscore.score({"mine": coupled}, (images, labels)).rows
    (trace,) = rows.query("kernel == 'clean' and score == 'trace'")["value"]
    alone = ntkscore.ntk(Model(apply, weights), jnp.asarray(images, jnp.float32))
    assert trace == pytest.approx(float(jnp.trace(alone)), rel=1e-4)


def test_a_new_network_joins_and_an_old_one_with_other_weights_is_refused(tmp_path: Path) -> None:
    first = {"a": network(4)}
    ntkscore.score(first, IMAGES, out=tmp_path)
    both = first | {"b": network(8)}
    ranked = ntkscore.score(both, IMAGES, out=tmp_path).rank("params")
    assert list(ranked["network"]) == ["b", "a"]
    with refuses("others", expected=("a", tmp_path)):
        ntkscore.score({"a": network(4, seed=1)}, IMAGES, out=tmp_path)


@pytest.mark.parametrize("networks", [{}, {"a,b": network(2)}])
def test_names_that_cannot_be_are_refused(networks: dict) -> None:
    with refuses([*networks]):
        Candidates(networks=networks).architectures("all")


def test_a_file_of_networks_is_ranked_and_looked_at_from_the_command_line(tmp_path: Path) -> None:
    file, out = tmp_path / "mine.py", str(tmp_path / "run")
    file.write_text(FILE)
    options = ("--space", str(file), "--format", "csv")
    told = invoke("score", file, "--samples", "4", "--out", out).stderr
    assert f"2 networks are scored; `ntkscore rank {out}` ranks them" in told
    printed = invoke("rank", out, *options[2:], "--by", "params").stdout
    assert [line.split(",")[1] for line in printed.splitlines()] == ["network", "m4", "m2"]
    assert invoke("rank", out, *options, "--by", "params").stdout == printed
    with refuses("run", remedy="--space"):
        ntkscore.open_run(out).space.network("m2", np.zeros((1, 32, 32, 3)))
    refused("expected a network to be one of m2, m4, got 'm3'", "rank", out, "m3")
    alone = invoke("score", "m4", *options, "--samples", "4").stdout
    assert {line.split(",")[0] for line in alone.splitlines()} == {"network", "m4"}
    named = invoke("score", file, "m4", "--samples", "4", "--format", "csv").stdout
    assert {line.split(",")[0] for line in named.splitlines()} == {"network", "m4"}
    refused("expected a network to be one of m2, m4, got 'm3'", "score", file, "m2,m3")
    other = ("--out", str(tmp_path / "other"))
    refused(
        "expected a network to be one of m2, m4, got 'm3'; choose", "score", "m3", *options, *other
    )
    described = Path(out) / "networks.json"
    described.write_text(described.read_text()[:9])
    refused("expected a known space in", "rank", out)
    message = f"expected no --space beside {file}, whose networks are one, got darts"
    refused(message, "score", file, "--space", "darts", "--samples", "4")


def test_a_stopped_run_of_networks_is_ranked_without_them(tmp_path: Path) -> None:
    def stop(progress: Progress) -> None:
        if progress.done:
            raise KeyboardInterrupt

    scoring = Scoring.of(IMAGES, space=Candidates(networks=FEW))
    with pytest.raises(KeyboardInterrupt):
        engine.run(scoring, list(FEW), tmp_path, report=stop)
    ranked = ntkscore.open_run(tmp_path).rank("params")
    assert list(ranked["network"]) == ["narrow"] and list(ranked["params"]) == [3072 * 4 + 40]


def test_networks_of_a_file_are_made_at_images_of_the_data(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    # The weights are what the function was given.
    made = "{'m': Model(lambda w, x: x.reshape(len(x), -1) @ w, images.reshape(len(images), -1).T)}"
    file.write_text(f"from ntkscore import Model\n\ndef networks(images):\n    return {made}\n")
    images = ntkscore.load_images("synthetic", samples=POINTS)
    for seeds in (1, [3]):
        scoring = Scoring.of(images, space=space_class(str(file))(), seeds=seeds)
        weights = scoring.space.draw("m", 0, np.float32)
        expected, _ = images.draw(0)
        np.testing.assert_array_equal(weights.T, expected.reshape(POINTS, -1))
    held_out = replace(images, images=255 - images.images)
    source = {False: images, True: held_out}.get
    attacked = trained_networks(file, None, default_space(), source)
    np.testing.assert_array_equal(attacked.pairs[0][1].params, weights)
    assert attacked.images is held_out


@pytest.mark.parametrize("inside", [lambda f: f, jax.jit, jax.checkpoint])
@pytest.mark.parametrize("whole", [lambda f: f, jax.jit])
def test_a_network_with_other_statistics_is_refused(
    inside: Callable[..., Any], whole: Callable[..., Any], tmp_path: Path
) -> None:
    for place, mean in enumerate((0.25, 0.25, 0.5)):
        means = np.full(3072, mean, np.float32)
        centred = inside(lambda x, means=means: x.reshape(len(x), -1) - means)
        made = Model(whole(lambda w, x, centred=centred: centred(x) @ w), jnp.ones((3072, 10)))
        with refuses("others", expected=("a", tmp_path)) if place == 2 else nullcontext():
            ntkscore.score({"a": made}, IMAGES, out=tmp_path)


def test_a_network_of_a_space_with_other_statistics_is_refused(tmp_path: Path) -> None:
    for place, scale in enumerate((1.0, 1.0, 0.5)):
        images = scale * IMAGES.draw(0)[0]  # whose statistics its normalisations have
        made = SPACE.on(IMAGES.task).network("323133", images)
        with refuses("others", expected=("a", tmp_path)) if place == 2 else nullcontext():
            ntkscore.score({"a": made}, IMAGES, out=tmp_path)


def test_errors_and_warnings_say_which_network_they_are_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def narrow(weights: jax.Array, images: jax.Array) -> jax.Array:
        return images.reshape(len(images), 100) @ weights

    mine = {"good": network(2), "bad": Model(narrow, jnp.ones((100, 10)))}
    with refuses(expected="(network 'bad')"):
        ntkscore.score(mine, IMAGES)
    unused = Model(lambda w, x: apply(w[:2], x), [*network(2).params, jnp.ones(3)])
    ntkscore.score({"good": network(2), "idle": unused}, IMAGES)
    (told,) = [r.getMessage() for r in caplog.records if "do not depend" in r.getMessage()]
    assert told.startswith("network 'idle': ")


def test_a_function_that_takes_no_images_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("def networks():\n    return {}\n")
    message = "expected a function networks(images), got networks(); give it the images"
    refused(message, "score", file, "--samples", "4")


@pytest.mark.parametrize("line", ["from .beside import network", "import beside_of_mine"])
def test_a_file_is_told_how_it_imports_one_beside_it(tmp_path: Path, line: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{line}\n{FILE}")
    with refuses(expected=file, remedy=("from .NAME", "PYTHONPATH")):
        space_class(str(file))


def test_a_space_beside_networks_and_a_space_with_such_a_function_are_no_candidates(
    tmp_path: Path,
) -> None:
    with refuses("candidates", expected="space"):
        ntkscore.score({"a": network(4)}, IMAGES, space=Candidates())
    own = Path(__file__).with_name("own_space.py").read_text()
    file = tmp_path / "own.py"
    file.write_text(f"{own}\n\ndef networks(count):\n    return count\n")
    assert space_class(str(file)).name == "one_hidden"


@pytest.mark.oracle
def test_pytorch_modules_are_ranked(tmp_path: Path) -> None:
    nn = pytest.importorskip("torch.nn")
    modules = {
        f"m{m}": nn.Sequential(nn.Flatten(), nn.Linear(3072, m), nn.ReLU(), nn.Linear(m, 10))
        for m in (2, 4)
    }
    run = ntkscore.score(modules, IMAGES, out=tmp_path)
    ranked = run.rank("params")
    assert list(ranked["network"]) == ["m4", "m2"]
    pixels, labels = IMAGES.draw(0)
    alone = scored(modules["m4"], pixels, labels)
    there = run.of("m4").rows
    np.testing.assert_allclose(alone["value"], there["value"], rtol=1e-4, atol=1e-6)
    assert jnp.isfinite(ranked["params"].to_numpy(float)).all()
