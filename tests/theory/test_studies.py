"""The theory's experiments: slopes and verdicts, and each of them at a small size."""

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from cells.residual import Residual
from experiments.__main__ import EXPERIMENTS, app
from experiments.report import write_page
from experiments.study import Experiment, Study
from experiments.theory.seeds import Interval, crossing, over_seeds
from experiments.theory.studies import (
    THEORY,
    convolutional_stability,
    filters,
    ranking,
    tradeoff,
)
from experiments.theory.studies.digits import split
from experiments.theory.studies.setting import kernels_of, on_points
from experiments.theory.studies.statistics import Findings, agreement, positive, slope, within
from experiments.theory.tasks import margin, on_sphere
from ntkscore.errors import InputError
from ntkscore.model import Model

THEORY_PAGE = Path(__file__).parents[2] / "experiments" / "THEORY.md"
ROUNDING = 0.0051
"""The page prints two digits."""


def test_the_slope_of_a_power_law_is_its_exponent() -> None:
    rng = np.random.default_rng(0)
    rows = [
        {"m": m, "seed": seed, "y": 3 * m**-0.5 * np.exp(0.02 * rng.standard_normal())}
        for m in (16, 64, 256)
        for seed in range(8)
    ]
    fitted = slope(pd.DataFrame(rows), "m", "y")
    assert fitted.value == pytest.approx(-0.5, abs=0.01)
    assert fitted.low < fitted.value < fitted.high < fitted.low + 0.05
    assert str(Interval(-0.5, -0.61, -0.4)) == "-0.50 [-0.61, -0.40]"


def test_an_interval_inside_beside_and_across_a_range() -> None:
    inside, apart, across = (Interval(at, at - 0.05, at + 0.05) for at in (-0.5, -0.2, -0.4))
    for intervals, verdict in (
        ([inside], "reproduced"),
        ([apart], "not reproduced"),
        ([across], "not decidable"),
        ([inside, inside], "reproduced"),
        ([inside, across], "not decidable"),
        ([inside, across, apart], "not reproduced"),
        ([inside, Interval(*[np.nan] * 3)], "not decidable"),
    ):
        assert within(intervals, -0.6, -0.4) == verdict
    assert within([inside], -np.inf, -0.4) == "reproduced"
    assert within([inside], 0, np.inf) == "not reproduced"


@given(
    st.lists(st.tuples(st.floats(-2, 2), st.floats(0, 1)), min_size=1, max_size=3),
    st.sampled_from([(-1.0, 1.0), (-np.inf, 0.0), (0.5, np.inf)]),
)
def test_no_verdict_contradicts_its_interval(
    found: list[tuple[float, float]], between: tuple[float, float]
) -> None:
    low, high = between
    intervals = {str(i): Interval(a + w / 2, a, a + w) for i, (a, w) in enumerate(found)}
    findings = Findings()
    findings.measure("what", "paper", intervals, low, high, "why")
    (finding,) = findings
    outside = [one for one in intervals.values() if one.low < low or high < one.high]
    apart = [one for one in outside if one.high < low or high < one.low]
    assert (finding.verdict == "reproduced") == (not outside)
    assert (finding.verdict == "not reproduced") == bool(apart)


INTERVAL = r"\[(-?[\d.]+|nan), (-?[\d.]+|nan)\]"
RANGE = r"must lie (?:from (\S+) to (\S+)|above (\S+)|below (\S+)) \|$"


def test_no_verdict_of_the_page_contradicts_its_interval() -> None:
    page = THEORY_PAGE.read_text(encoding="utf-8")
    judged = 0
    for line in page.splitlines():
        asked = re.search(RANGE, line)
        if asked is None:
            continue
        _, _, _, measured, verdict, _, _ = re.split(r"(?<!\\)\|", line)
        low = float(asked[1] or asked[3] or "-inf") - ROUNDING
        high = float(asked[2] or asked[4] or "inf") + ROUNDING
        ends = [tuple(map(float, pair)) for pair in re.findall(INTERVAL, measured)]
        assert ends, line
        if verdict.strip() == "reproduced":
            assert all(low <= a and b <= high for a, b in ends), line
        elif verdict.strip() == "not reproduced":
            assert any(b < low + 2 * ROUNDING or high - 2 * ROUNDING < a for a, b in ends), line
        else:
            assert verdict.strip() == "not decidable", line
        judged += 1
    assert judged > 80


def test_a_crossing_is_where_lines_meet_and_nan_where_there_is_none() -> None:
    x = np.array([1.0, 2.0, 4.0])
    assert crossing(x, np.array([0.9, 0.7, 0.3]), 0.5) == pytest.approx(3)
    assert crossing(x, np.array([0.1, 0.7, 0.9]), 0.4) == pytest.approx(1.5)
    assert np.isnan(crossing(x, np.array([0.9, 0.8, 0.7]), 0.5))
    falling = np.array([[0.9, 0.7, 0.3], [0.9, 0.8, 0.7]])
    found = over_seeds(falling, lambda values: crossing(x, values.mean(0), 0.6))
    assert found.low == pytest.approx(2.5) and found.high > 3  # one seed alone never crosses
    assert np.isnan(over_seeds(falling[1:], lambda v: crossing(x, v[0], 0.6)).low)


def test_agreement_is_spearmans_by_seed_and_leaves_out_what_is_missing() -> None:
    rng = np.random.default_rng(0)
    size = np.arange(30) % 3
    rows = []
    for seed in range(2):
        error = size + 0.1 * rng.standard_normal(30)
        frame = {"network": np.arange(30), "seed": seed, "size": size, "error": error}
        rows.append(pd.DataFrame(frame | {"term": size + 0.1 * rng.standard_normal(30)}))
    frame = pd.concat(rows)
    found = agreement(frame, "error", "term")
    for seed, value in enumerate(found.seeds):
        one = frame[frame["seed"] == seed]
        assert value == pytest.approx(one["error"].corr(one["term"], method="spearman"))
    assert found.mean.low < found.mean.value < found.mean.high
    assert positive([found]) == "reproduced"
    assert positive([found, agreement(frame, "error", "term", "size")]) == "not decidable"
    falling = agreement(frame.assign(term=-frame["term"]), "error", "term")
    assert positive([falling]) == "not reproduced"
    holes = frame.assign(term=frame["term"].where(frame["network"] > 4))
    assert agreement(holes, "error", "term").networks == 25


def test_ranks_among_networks_that_miss_as_many_skips() -> None:
    missing, place = np.divmod(np.arange(20), 5)
    one = {"network": np.arange(20), ranking.MISSING: missing, "error": 9 * missing + place}
    rows = [pd.DataFrame(one | {"seed": seed, "term": 9 * missing - place}) for seed in range(2)]
    frame = pd.concat(rows, ignore_index=True)
    found = {among: ranking.correlation(frame, "error", "term", among) for among in ranking.SAYS}
    assert found["all"].mean.value > 0.8
    assert found["given"].mean.value < 0
    np.testing.assert_allclose(found["equals"].seeds, -1)
    unequal = ranking.among_equals(frame[frame["network"] != 3], ["term"])
    assert unequal.groupby(ranking.MISSING)["term"].mean().abs().max() < 1e-12


def test_errors_are_held_against_those_of_another_seed() -> None:
    rows = [{"network": k, "seed": seed, "e": 10 * k + seed} for seed in (2, 0, 1) for k in (1, 0)]
    frame = ranking.with_other_seed(pd.DataFrame(rows), "e")
    np.testing.assert_array_equal(frame[ranking.OTHER], [2, 0, 1, 12, 10, 11])


def test_every_pattern_of_ten_layers_is_a_network() -> None:
    every = ranking.populations()[ranking.EVERY]
    assert len(set(every)) == 256 and {len(pattern) for _, pattern in every} == {8}


def test_margins_that_overflow_are_wrong_and_counted() -> None:
    x, y = margin(20, 5, 0.25, np.random.default_rng(0))
    space = on_points(Residual(output_scale="sqrt_width", width=16), x)
    skips = space.parse("00")
    shape, gammas = space.shape(skips), np.array([1e-3, 1e30], np.float32)
    weights = space.draw(shape, 0, np.float32)
    arrays = (np.float32(x), np.float32(y), gammas)
    clean, robust, overflow = ranking.trained(space, shape, weights, skips.indicators, *arrays)
    assert overflow[0] == 0 and overflow[1] >= 0.9
    assert clean[0] <= robust[0] < 1 and min(clean[1], robust[1]) >= overflow[1]


def test_the_largest_step_is_known_between_the_ends_of_its_search() -> None:
    x, y = jnp.array([[1.0], [-1.0]]), jnp.array([1.0, 1.0])
    model = Model(lambda w, points: points * w, jnp.array(3.0))
    # The loss has curvature 1/4 at its minimum, which larger steps than 8 leave again.
    found = [float(filters.largest_step(scale)(model, x, y)) for scale in (1e-6, 4.0, 1e9)]
    assert np.isnan(found[0]) and np.isnan(found[2])
    assert found[1] == pytest.approx(8, rel=0.08)


def test_signs_of_terms_and_errors_are_compared_where_both_are_known() -> None:
    rise, fall, flat = (Interval(x, x - 0.1, x + 0.1) for x in (0.5, -0.5, 0.05))
    unknown = Interval(np.nan, np.nan, np.nan)
    assert tradeoff.same_sign(fall, fall) == tradeoff.same_sign(rise, rise) == "reproduced"
    assert tradeoff.same_sign(rise, fall) == "not reproduced"
    for other in (flat, unknown):
        assert tradeoff.same_sign(fall, other) == tradeoff.same_sign(other, rise) == "not decidable"
    part = pd.DataFrame(
        {
            "seed": [0, 0, 1, 1],
            "beta": [0.0, 1.0] * 2,
            "clean error": [0.1, 0.3, 0.1, 0.2],
            "PGD error": [0.9, 0.4, 0.8, 0.4],
        }
    )
    for change, verdict in ((0, "reproduced"), (1, "not decidable"), (2, "not reproduced")):
        findings = Findings()
        part.loc[[1, 3][:change], "PGD error"] = 0.95
        tradeoff.trade(findings, "relu", part)
        assert findings[0].verdict == verdict


def test_trainings_that_diverge_are_left_out_and_counted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module = convolutional_stability
    depth = itertools.product((module.DEPTH,), module.NETWORKS, (4, 8), (4,), (module.EPOCHS,))
    longer = ((module.STOPPING, module.FULLY, 2, 4, n) for n in (module.SHORT, module.LONG))
    columns = ("figure", "kind", "L", "m", "epochs")
    rows = [
        dict(zip(columns, case, strict=True))
        | {"seed": seed, "start": 1.0, "kappa": 1.0, "accuracy": 0.9, "loss": 0.1}
        | {"end": case[2] * (2.0 if case[1] == "convolutional" and case[2] == 8 else 1.0)}
        for case in [*depth, *longer]
        for seed in range(3)
    ]
    lost = next(row for row in rows if row["kind"] == "convolutional" and row["L"] == 8)
    lost |= {"end": np.nan, "loss": np.nan, "accuracy": 0.1}
    for name, value in {"rows": lambda _: rows, "WIDTHS": (4,), "STOPPED": ((4, 2),)}.items():
        monkeypatch.setattr(module, name, value)
    outcome = module.run(Study(tmp_path))
    convolutional, residual, apart, *_ = outcome.findings
    assert convolutional.ours == "4.00 [4.00, 4.00]" and "0.90 and 0.90" in convolutional.why
    assert residual.ours == "2.00 [2.00, 2.00]"
    assert apart.ours == "2.00 [2.00, 2.00] times as far" and apart.verdict == "reproduced"
    assert outcome.remarks[-1].startswith("Of 24 trainings 1 diverged")


def test_kernels_of_a_stack() -> None:
    points = on_sphere(np.random.default_rng(0).standard_normal((6, 2, 3)).astype(np.float32))
    np.testing.assert_allclose(np.sum(points**2, (1, 2)), 1)
    gram = np.arange(36.0).reshape(6, 6)
    gram = gram + gram.T
    kernels = kernels_of(gram, 2, 1.0)
    np.testing.assert_array_equal(kernels["K_all"], kernels["K̂_ρ"])
    np.testing.assert_array_equal(kernels["K̃_all"], kernels["K̂_2ρ"])
    np.testing.assert_array_equal(kernels_of(gram, 2, 0.0)["K_all"], kernels["K"])
    np.testing.assert_array_equal(kernels["K̄_2ρ"], gram[2:4, 4:])


SMALL: dict[str, dict[str, Any]] = {
    "width": {"SEEDS": 2, "SETTINGS": {"relu, no skip": (Residual(), "0", (16, 64))}},
    "eigenvalue": {"SIZES": ((10, 64),), "RADII": (0.05,), "ACTIVATIONS": ("relu",), "WIDTH": 16},
    "lazy": {"STEPS": 30, "SEEDS": 2, "WIDTHS": (16, 64), "ACTIVATIONS": ("tanh",)},
    "tradeoff": {"STEPS": 300, "TEST": 100, "WIDTH": 32, "SEEDS": 2, "BETAS": (0.0, 1.0)}
    | {"OF_ENERGY": 40, "NETWORKS": {"relu, skip": ("relu", "1")}},
    "filters": {"WIDTH": 8, "STEPS": 20, "SEEDS": 2, "SIZES": (1, 3)}
    | {"VARIANCES": ("1/m",), "ACTIVATIONS": ("relu",)},
    "lemmas": {"DRAWS": 50, "SEEDS": 2, "SIZES": ((4, 4),), "FILTERS": (1, 3), "WIDTHS": (16, 64)}
    | {"ASCENT": 2, "DEPTHS": (1, 2), "LAZY_WIDTHS": (8, 16), "RUNS": ((8, 60),)}
    | {"FULLY": {"relu": ("1", 8)}, "CONVOLUTIONAL": {"κ = 1": ("1", 1), "κ = 3": ("1", 3)}}
    | {"TAUS": (0.01, 0.1), "OF_COROLLARY": 20, "COROLLARY_WIDTH": 8},
    "ranking": {"N": 30, "WIDTH": 16, "SEEDS": 2, "SIGMAS": ("relu",), "LAYERS": 5}
    | {"SIZES": (20, 40)},
    "gradient": {"STEPS": 5, "SEEDS": 2, "WIDTHS": (16, 64), "HIDDEN": (1,)},
    "projected": {"STEPS": 20, "SEEDS": 2, "WIDTHS": (16, 64), "COMPARATOR_STEPS": 40},
    "smooth": {"STEPS": 20, "SEEDS": 2, "WIDTHS": (16, 64), "COMPARATOR_STEPS": 40},
    "features": {"DRAWS": 3, "POINTS": 50, "FEATURES": (16, 64), "SIGMAS": ("tanh",)},
    "lazy_flip": {"SIDES": (10, 14), "WIDTHS": (20, 40), "SEEDS": 2, "IMAGES": 5},
    "lazy_radius": {"SIDES": (10,), "WIDTH": 20, "DEVIATIONS": (1.0, 2.0), "SEEDS": 2, "IMAGES": 5},
    "lazy_adversarial": {"SIDES": (10, 14), "WIDTH": 20, "SEEDS": 2, "EPOCHS": 2}
    | {"SCALED": (1.0, 7.0)},
    "lazy_deviation": {"WIDTHS": (10, 20), "DEVIATIONS": (1.0, 30.0), "SIDES": (7, 10)}
    | {"WIDTH": 10, "SHARES": (0.1, 0.9), "SEEDS": 2},
    "lazy_stability": {"LAYERS": (2, 4, 8), "FURTHER": (("he", 4, 1024),), "SEEDS": 1, "MORE": {}}
    | {"WIDTHS": {"ntk": (4, 128), "he": (64, 256), "lecun": (256,)}, "TRAIN": 32, "TEST": 10}
    | {"EPOCHS": 2},
    "travelling_stability": {"WIDTHS": (8, 16), "SEEDS": 2, "MOST": 300, "POINTS": 20},
    "random_flip": {"DIMENSIONS": (25, 100, 400), "WIDTH": 50, "DRAWS": 8},
    "random_stability": {"LAYERS": (2, 3), "WIDTHS": (16, 64), "NETWORKS": {16: 20, 64: 20}}
    | {"DIMENSION": 5},
    "approximation": {"DIMENSIONS": (3,), "DRAWS": 3, "POINTS": 50, "FEATURES": (16, 64)}
    | {"GAPS": (0.6,), "WIDTHS": (16, 32), "SEEDS": 2},
    # The epochs and sizes of both figures meet, as with --full.
    "convolutional_stability": {"TRAIN": 32, "TEST": 10, "EPOCHS": 2, "SEEDS": 2, "SIDE": 4}
    | {"WIDTHS": (4,), "LAYERS": (2, 4), "STOPPED": ((4, 2),), "SHORT": 2, "LONG": 3},
    "interpolation": {"N": 10, "STEPS": 20, "SEEDS": 1, "WIDTHS": (2, 4), "DIMENSIONS": (8,)},
}


def write_digits(data_dir: Path, count: int = 700, test: bool = False) -> None:
    """Rings for zeros, bars for ones and noise for other digits, in MNIST's files."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[:28, :28] - 13.5
    shapes = {0: np.abs(np.hypot(rows, columns) - 8) < 2, 1: np.abs(columns) < 2}
    labels = rng.integers(0, 10, count).astype(np.uint8)
    labels[: 640 if count > 640 else count] %= 2
    pixels = [
        200 * shapes.get(int(k), rng.uniform(size=(28, 28)) < 0.2) + rng.integers(0, 50, (28, 28))
        for k in labels
    ]
    folder, of = data_dir / "MNIST" / "raw", "t10k" if test else "train"
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in (("images-idx3", np.array(pixels, np.uint8)), ("labels-idx1", labels)):
        head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
        (folder / f"{of}-{name}-ubyte").write_bytes(head + array.tobytes())


def test_digits_are_split_by_seed_until_there_are_test_files(tmp_path: Path) -> None:
    write_digits(tmp_path)
    study = Study(tmp_path)
    train, test = split(study, 7, 0)
    again, other = (split(study, 7, seed)[0] for seed in (0, 1))
    assert train.x.shape == (600, 49) and len(test.x) >= 40
    np.testing.assert_allclose(np.linalg.norm(train.x, axis=1), 1)
    np.testing.assert_array_equal(train.x, again.x)
    assert not np.array_equal(train.x, other.x)
    pixels = split(study, 7, 0, "pixel")[0].x
    assert pixels.min() >= 0 and 0.5 < pixels.max() <= 1
    write_digits(tmp_path / "official")
    write_digits(tmp_path / "official", 30, test=True)
    train, test = split(Study(tmp_path / "official"), 7, 0)
    assert len(train.x) > 600 and len(test.x) == 30 and set(test.y) == {-1.0, 1.0}


def test_the_page_without_mnist_is_a_sentence(tmp_path: Path) -> None:
    asked = ["theory", "--data-dir", str(tmp_path), "--out", str(tmp_path / "THEORY.md")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 2 and result.stderr.count("\n") == 1
    assert result.stderr.startswith("error: expected") and "mnist" in result.stderr.lower()


def test_the_full_size_replaces_that_for_two_cores_while_it_runs() -> None:
    def width_now(study: Study) -> Any:
        return filters.WIDTH

    width_now.__module__ = filters.__name__
    experiment, usual = Experiment("A title", width_now), filters.WIDTH
    sizes = [experiment.outcome(Study(Path(), full=full)) for full in (True, False)]
    assert sizes == [filters.FULL["WIDTH"], usual]


def test_an_experiment_of_one_size_has_no_full_one() -> None:
    with pytest.raises(InputError, match=r"expected no --full: .* has one size; leave it out"):
        EXPERIMENTS["sweep"].outcome(Study(Path(), full=True))


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMALL)
def test_every_experiment_gives_a_page(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    experiment = THEORY[f"theory-{name.replace('_', '-')}"]
    module = sys.modules[experiment.run.__module__]
    for constant, value in SMALL[name].items():
        assert hasattr(module, constant)
        monkeypatch.setattr(module, constant, value)
    write_digits(tmp_path)
    outcome = experiment.run(Study(tmp_path))
    assert outcome.figure is not None and len(outcome.frame) and outcome.findings
    experiment = Experiment("A title", lambda study: outcome)
    write_page("theory", Study(tmp_path), {"theory-x": experiment}, tmp_path / "THEORY.md")
    text = (tmp_path / "THEORY.md").read_text()
    assert "## A title" in text and outcome.findings[0].what in text
    assert (tmp_path / "figures" / "theory-x.png").stat().st_size > 1000
    if name == "eigenvalue":
        verdicts = {finding.what: finding.verdict for finding in outcome.findings}
        assert verdicts["the corrected bound, every kernel and skip pattern"] == "reproduced"
        assert verdicts["theorem 2 for K̂_ρ, a skip missing, points sampled"] == "not reproduced"


def test_every_study_has_a_small_size() -> None:
    assert {f"theory-{name.replace('_', '-')}" for name in SMALL} == THEORY.keys()
