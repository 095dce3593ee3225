"""The library's `score`: lists, refusals, and networks of other spaces."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from tiny import RESIDUAL, SPACE, invoke, refuses, rows_in, scored

import cells
import ntkscore
from cells.residual import Residual
from ntkscore.config import Config
from ntkscore.spaces import space_class

RNG = np.random.default_rng(0)
DRAWN = ntkscore.load_images("synthetic", samples=4)
IMAGES, LABELS = RNG.uniform(size=(4, 8, 8, 3)), np.array([0, 1, 2, 0])
OWN = Path(__file__).with_name("own_space.py")
PLAIN = OWN.with_name("plain_space.py")


def score(architectures: object, space: ntkscore.Space = RESIDUAL, **choices: Any) -> pd.DataFrame:
    return scored(architectures, IMAGES, LABELS, space=space, **choices)


@pytest.mark.thorough
def test_a_network_of_a_list_has_the_rows_that_it_has_alone() -> None:
    names = ["0110", "0", "01", "0", "1"]
    rows = score(names)
    assert len(rows) == 73 * 4
    for name in names:
        part = rows[rows["skips"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(part, score(name))
    pd.testing.assert_frame_equal(score(tuple(map(RESIDUAL.parse, names))), rows)


@pytest.mark.slow
def test_measures_with_passes_of_their_own_are_rows_where_they_are_asked_for() -> None:
    rows = score("01", config=Config(proxies=True))
    more = rows.merge(score("01"), how="outer", indicator=True).query("_merge != 'both'")
    assert (more["_merge"] == "left_only").all() and "proxies" not in rows
    status = more.assign(measure=more["kernel"] + "." + more["score"]).set_index("measure")
    of_weights = ("grad_norm", "snip", "zico", "fisher_entropy", "vkdnw")
    gradients = {f"{k}.{m}" for k in ("clean", "robust") for m in of_weights}
    moved = {"clean.stability", "clean.flip_distance", "clean.trainability", "network.zen"}
    inside = ("fisher", "grasp", "near", "meco", "output_curvature", "dextr", "swap")
    assert set(status.index) == gradients | moved | {f"clean.{each}" for each in inside}
    assert (status["status"] == "ok").all()


def test_rows_have_every_choice_of_space_and_config() -> None:
    rows = score(["01"], seed=3, num_classes=5)
    assert list(rows.columns) == [
        *("skips", "seed", "dataset", "space", "depth", "width", "activation"),
        *("activation_scaling", "output_scale", "samples"),
        *("balanced", "output", "parameters", "attack", "random_start", "norm", "x64", "rho"),
        *("steps", "step_size", "beta", "kernel", "score", "value", "status"),
    ]
    first = rows.iloc[0]
    assert (first["seed"], first["space"], first["width"], first["samples"]) == (
        3,
        "residual",
        8,
        4,
    )


@pytest.mark.parametrize(
    ("images", "labels", "got", "expected"),
    [
        (np.zeros((2, 3, 8, 8)), np.zeros(2, int), [(3, 8, 8)], "(height, width, 3)"),
        (np.zeros((2, 9, 9, 3)), np.zeros(2, int), ["9×9"], 4),
        (np.zeros((2, 7, 9, 3)), np.zeros(2, int), ["7×9"], 4),
        (np.full((2, 8, 8, 3), 255.0), np.zeros(2, int), [255], ("pixels", 0, 1)),
        (np.full((2, 8, 8, 3), np.nan), np.zeros(2, int), ["NaN", 0], ("pixels", 0, 1)),
        (np.zeros((2, 8, 8, 3)), np.array([0, 3]), [0, 3], (2, "labels", 0, 1)),
        (np.zeros((2, 8, 8, 3)), np.array([0, -1]), [-1, 0], (2, "labels", 0, 1)),
        (np.zeros((2, 8, 8, 3)), np.array([0]), ["int64", (1,)], (2, "labels")),
        (np.zeros((2, 8, 8, 3)), np.array([0.0, 1.0]), ["float64", (2,)], (2, "labels")),
        (np.zeros((1, 8, 8, 3)), np.array([0]), [1], (2, "samples")),
    ],
)
def test_bad_images_are_refused(
    images: np.ndarray, labels: np.ndarray, got: list, expected: Any
) -> None:
    with refuses(*got, expected=expected):
        scored(0, images, labels, space=SPACE, num_classes=2)


@pytest.mark.parametrize("none", [[], ()])
def test_an_empty_list_is_refused(none: list | tuple) -> None:
    with refuses("none", expected="network"):
        score(none)


def test_a_name_that_is_none_is_refused() -> None:
    with refuses("2", expected="0110"):
        score(["01", "2"])


@pytest.mark.slow
def test_ranking_and_correlating_residual_networks(tmp_path: Path) -> None:
    names = ["0", "01", "0110"]
    run = ntkscore.score(names, DRAWN, space=RESIDUAL, out=tmp_path / "run")
    ranked = run.rank()
    assert set(ranked["skips"]) == set(names)
    assert {"params", "clean.naswot"} < set(ranked)
    by_size = run.rank("params+shortcuts")
    assert list(by_size["skips"]) == ["0110", "01", "0"]
    accuracies = pd.DataFrame({"pgd8": [0.2, 0.3, 0.4]}, index=names)
    table = ntkscore.Table.from_frame(accuracies, dataset="cifar10")
    frame = run.correlate(table).set_index("score")
    pd.testing.assert_frame_equal(
        frame, ntkscore.correlate(tmp_path / "run", table).set_index("score")
    )
    assert frame.loc["shortcuts", "spearman"] == frame.loc["params", "spearman"] == 1
    assert frame.loc["params", "best_cell"] == "0110"
    found = ntkscore.lookup(names, table, space=RESIDUAL)
    assert found["skips"].tolist() == names
    assert found["shortcuts"].tolist() == [0, 1, 2]


def test_a_space_of_ones_own_is_one_short_file() -> None:
    text = OWN.read_text()
    assert len(text.splitlines()) <= 60
    imported = [
        line.split()[1] for line in text.splitlines() if line.startswith(("import", "from"))
    ]
    assert set(imported) <= {"ntkscore", "jax", "jax.numpy", "numpy", "dataclasses"}


def test_a_space_is_counted_by_the_traces_of_its_networks() -> None:
    space = space_class(str(PLAIN))().on(ntkscore.Task((8, 8, 3), 4))
    by_hand = {"params": 8 * 3 + 8 * 8 * 25 + 8 * 4, "flops": 64 * (8 * 3 + 8 * 8 * 25) + 8 * 4}
    counted = {"layers": 3, "rectifiers": 2, "depth": 3, "shortest_path": 3, "field": 5}
    assert space.costs((8, 1, 5)) == by_hand
    assert space.structure((8, 1, 5)) == counted
    assert space_class(str(OWN))().structure((8, "relu")) == {}


@pytest.mark.slow
def test_a_space_without_costs_is_ranked_by_the_default(tmp_path: Path) -> None:
    options = ["--space", PLAIN, "--samples", "4", "--out", tmp_path / "run"]
    invoke("score", "8x1x1,8x3x5,8x5x3,8x5x5", *options)
    ranked = invoke("rank", tmp_path / "run", "--space", PLAIN, "--format", "csv").stdout
    first, *rows = ranked.splitlines()
    terms = ["clean.naswot", "params", "flops"]
    assert first.split(",") == ["rank", "network", "sum of log-ranks", *terms]
    assert [row.split(",")[1] for row in rows][-1] == "8x1x1"


@pytest.mark.slow
def test_a_space_of_ones_own_is_scored_ranked_and_resumed(tmp_path: Path) -> None:
    space = space_class(str(OWN))(scale=2.0)
    names = ["8xtanh", "32xrelu", "8xtanh"]
    rows = score(names, space)
    assert rows["network"].tolist()[::73] == ["32xrelu", "8xtanh"]
    assert rows["width"].tolist()[::73] == [32, 8]
    assert set(rows["scale"]) == {2.0} and set(rows["space"]) == {"one_hidden"}
    seen = []

    def interrupt(progress: object) -> None:
        seen.append(progress)
        if len(seen) == 3:
            raise KeyboardInterrupt

    def rank(out: str, report=lambda progress: None) -> pd.DataFrame:
        out_dir = tmp_path / out
        how = {"report": report, "batch": 1, "out": out_dir}
        return ntkscore.score("all", DRAWN, space=space, **how).rank()

    whole = rank("whole")
    assert len(whole) == 12 and whole["network"].is_unique
    with pytest.raises(KeyboardInterrupt):
        rank("broken", interrupt)
    assert 0 < len(ntkscore.open_run(tmp_path / "broken", type(space)).results.finished()) < 12
    pd.testing.assert_frame_equal(rank("broken"), whole)
    broken, expected = (rows_in(tmp_path / d) for d in ("broken", "whole"))
    pd.testing.assert_frame_equal(broken, expected)


def test_depths_do_not_mix_weights() -> None:
    """Networks of several depths in one list have the rows that each has in a space of its own."""
    mixed = score(["0", "0110"], Residual(width=8, depth=6))
    deep = score("0110", Residual(width=8, depth=6))
    pd.testing.assert_frame_equal(mixed.iloc[73:].reset_index(drop=True), deep)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("model", "got", "expected"),
    [
        (lambda w, x: x @ w, "function", "ntkscore.Model"),
        (ntkscore.Model(lambda w, x: (x @ w, x), np.ones((6, 2))), "tuple", "(2, classes)"),
        (ntkscore.Model(lambda w, x: x @ w, np.ones((6, 2), int)), "int32", "weights"),
        (ntkscore.Model(lambda w, x: x, []), "none", "weights"),
        (ntkscore.Model(lambda w, x: (x @ w).sum(1), np.ones((6, 2))), "(2,)", "(2, classes)"),
    ],
)
def test_what_is_no_model_is_refused(model: ntkscore.Model, got: str, expected: str) -> None:
    with refuses(got, expected=expected):
        scored(model, np.full((4, 6), 0.5), np.array([0, 1, 0, 1]))


def test_logits_that_are_not_finite_are_traced_to_where_they_come_from() -> None:
    def by_a_root(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.exp(x) @ (jnp.sqrt(weights["scale"]) * weights["kernel"])

    def by_a_logarithm(weights: dict[str, jax.Array], x: jax.Array) -> jax.Array:
        return jnp.log(x @ weights["kernel"] - weights["scale"])

    weights = {"kernel": np.eye(6)[:, :2], "scale": -np.ones(2)}
    images, labels = np.full((4, 6), 0.5), np.array([0, 1, 0, 1])
    model = ntkscore.Model(by_a_root, weights)
    with refuses([np.nan, np.nan], remedy=("sqrt", "weights")):
        scored(model, images, labels)
    weights = {"kernel": np.eye(6)[:, :2], "scale": np.ones(2)}
    kernel = lambda model, x, y: ntkscore.ntk(model, x, labels=y)  # noqa: E731
    for compute in (kernel, lambda *given: ntkscore.stack(*given, "fgsm", [0.1])):
        with refuses([np.nan, np.nan], remedy=("log", (1, 2))):
            compute(ntkscore.Model(by_a_logarithm, weights), images, labels)


def test_weights_that_the_logits_do_not_depend_on_are_named(caplog) -> None:
    weights = {"kernel": np.ones((6, 2)), "dead": np.ones(3)}
    model = ntkscore.Model(lambda weights, x: x @ weights["kernel"], weights)
    ntkscore.ntk(model, np.full((4, 6), 0.5))
    assert "the logits do not depend on params['dead'], which add nothing" in caplog.messages


@pytest.mark.parametrize(
    ("apply", "alike"),
    [
        (lambda w, x: (1e-9 * x.mean((1, 2)) @ w[0] + 1) @ w[1], True),
        (lambda w, x: x.mean((1, 2)) @ jnp.eye(3) + w[1][0], True),
        (lambda w, x: x.mean((1, 2)) @ w[0] @ w[1], False),
    ],
    ids=["logits", "gradients", "neither"],
)
def test_a_network_that_hardly_tells_the_images_apart_is_a_warning(
    caplog: pytest.LogCaptureFixture, apply: Any, alike: bool
) -> None:
    keys = jax.random.split(jax.random.key(0), 2)
    weights = [jax.random.normal(key, (3, 3)) for key in keys]
    rows = scored(ntkscore.Model(apply, weights), IMAGES, LABELS)
    of_kernel = rows.query("kernel == 'clean' and score == 'lambda_max'")["status"]
    said = [m for m in caplog.messages if "the kernel of network hardly differs between" in m]
    assert list(of_kernel) == (["constant"] if alike else ["ok"])
    assert len(said) == alike
    assert ("give them those of images" in caplog.text) is alike


def test_whole_numbers_among_the_weights_are_constants() -> None:
    """Such as the order of pixels: every measure is that of a network that closes over them."""
    order = np.random.default_rng(1).permutation(192).reshape(96, 2)
    weights = {"kernel": np.random.default_rng(2).normal(size=(192, 3)).astype(np.float32)}

    def apply(weights: Any, images: Any) -> Any:
        pixels = images.reshape(len(images), -1)[:, weights["order"].ravel()]
        return jax.nn.relu(pixels) @ weights["kernel"]

    closed = lambda weights, images: apply({**weights, "order": order}, images)  # noqa: E731
    config = Config(proxies=True)
    both = (ntkscore.Model(apply, {**weights, "order": order}), ntkscore.Model(closed, weights))
    given, expected = (scored(each, IMAGES, LABELS, config) for each in both)
    assert given.set_index("score").loc["synflow", "status"] == "ok"
    named = ["kernel", "score", "status"]
    pd.testing.assert_frame_equal(given[named], expected[named])
    same = given["score"] != "zen"  # its weights are drawn, leaf by leaf
    np.testing.assert_allclose(given["value"][same], expected["value"][same], rtol=1e-5)


def test_a_dependence_on_the_batch_must_be_declared() -> None:
    def apply(weights: jax.Array, x: jax.Array) -> jax.Array:
        return (x - x.mean(0)) @ weights

    images, labels = np.random.default_rng(0).uniform(size=(4, 6)), np.array([0, 1, 0, 1])
    weights = np.random.default_rng(1).normal(size=(6, 2))
    with refuses(remedy="coupled=True"):
        scored(ntkscore.Model(apply, weights), images, labels)
    rows = scored(ntkscore.Model(apply, weights, coupled=True), images, labels)
    assert np.isfinite(rows.loc[rows["score"] == "frobenius", "value"]).all()


def test_a_space_must_declare_a_dependence_on_the_batch(tmp_path: Path) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Centred(Residual):
        declared: bool = False

        def model(self, shape: Any, variables: Any, code: Any, images: jax.Array) -> ntkscore.Model:
            given = super().model(shape, variables, code, images)
            centred = lambda w, x: given.apply(w, x - x.mean(0))  # noqa: E731
            return ntkscore.Model(centred, given.params, coupled=self.declared)

    with refuses(remedy="coupled=True"):
        score("0", Centred(width=8))
    assert np.isfinite(score("0", Centred(width=8, declared=True))["value"]).any()


@pytest.mark.thorough
def test_a_network_keeps_its_own_passes() -> None:
    """A cell's network, given as a network of one's own, is scored as the cell is."""
    task = ntkscore.Task((8, 8, 3), 3)
    space = cells.NASBench201(task=task, channels=4, cells_per_stage=1, bn="init")
    cell, config = space.parse("323133"), Config(implementation="layerwise")
    variables = space.draw((), 0, np.float32)
    code, images = jnp.asarray(space.encode(cell)), jnp.zeros((1, *task.image_shape))
    model = space.model((), variables, code, images)
    given = scored(model, IMAGES, LABELS, config)
    alone = score(cell, space, config=config, mean=task.mean, std=task.std, num_classes=3)
    np.testing.assert_allclose(given["value"], alone["value"], rtol=1e-3)


def test_a_field_that_the_config_has_too_is_refused_without_a_directory() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Clash(Residual):
        samples: int = ntkscore.option(3, "Samples of something else.")

    with refuses("samples"):
        score("0", Clash(width=8))


@pytest.mark.parametrize("name", ["score", "kernel", "dataset", "width"])
def test_columns_of_a_network_that_a_row_has_already_are_refused(name: str) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Clash(Residual):
        def identity(self, architecture: Any) -> dict[str, str]:
            return {"skips": self.key(architecture), name: "1"}

        def key(self, architecture: Any) -> str:
            return str(architecture)

    with refuses(name, expected="residual"):
        score("0", Clash(width=8))
