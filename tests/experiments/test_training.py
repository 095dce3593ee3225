"""Experiments that train: corruptions, signs of masked gradients, and what they conclude."""

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

from cells import Cell
from cells.cell_space import STATISTICS
from cells.nasbench201.cell import OPERATIONS
from cells.nasbench201.forward import CellRules, run
from cells.nasbench201.space import NASBench201
from cells.nasbench201.training import Training
from cells.rules import trained_logits
from experiments.study import Study
from experiments.training import beta, corruptions, differentiable
from experiments.training.corrupted import CORRUPTIONS, clouds, corrupted
from experiments.training.corruptions import costs, figure_7, table_6
from experiments.training.gradients import PAPER, mean_interval, sign_findings
from experiments.training.setting import SmallTraining
from ntkscore.training.evaluation import CHECKS
from tests.networks import EXACT, error

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 32, 32, 3)).astype(np.uint8)
GREY = np.full((2, 32, 32, 3), 100, np.uint8)


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_a_corruption_keeps_the_form_and_harms_more_when_severe(name: str) -> None:
    smooth = np.linspace(0, 255, 32)[None, :, None, None] * np.ones((4, 1, 32, 3))
    images = np.uint8(smooth * [1, 0.8, 0.6])
    mild, severe = (corrupted(images, name, severity) for severity in (1, 5))
    assert mild.shape == severe.shape == images.shape and mild.dtype == np.uint8
    np.testing.assert_array_equal(mild, corrupted(images, name, 1))
    harm = [np.abs(each - images.astype(float)).mean() for each in (mild, severe)]
    assert harm[1] > 0
    if name != "elastic_transform":  # whose affine part shrinks while its shifts grow
        assert harm[0] < harm[1]


def test_noises_have_the_published_sizes() -> None:
    grey = np.full((8, 32, 32, 3), 128, np.uint8)
    noise = corrupted(grey, "gaussian_noise", 5) / 255
    assert noise.std() == pytest.approx(0.10, rel=0.05)
    shots = corrupted(grey, "shot_noise", 5) / 255
    assert shots.std() == pytest.approx((128 / 255 / 50) ** 0.5, rel=0.05)
    impulses = corrupted(grey, "impulse_noise", 5)
    assert (impulses == 0).mean() == pytest.approx(0.035, rel=0.15)
    assert (impulses == 255).mean() == pytest.approx(0.035, rel=0.15)


def test_blurs_keep_a_constant_image_and_glass_moves_pixels() -> None:
    for name in ("defocus_blur", "motion_blur", "zoom_blur", "glass_blur", "elastic_transform"):
        assert np.abs(corrupted(GREY, name, 5).astype(int) - 100).max() <= 1
    one = np.zeros((1, 32, 32, 3), np.uint8)
    one[0, 16, 16] = 255
    moved = corrupted(one, "glass_blur", 1)[0, ..., 0]
    assert moved.sum() >= 254 and np.argwhere(moved > 200).tolist() != [[16, 16]]


def test_contrast_and_brightness_in_numbers() -> None:
    flat = np.zeros((1, 32, 32, 3), np.uint8)
    flat[:, :16] = 200
    mean = 100 / 255
    low = corrupted(flat, "contrast", 5)
    assert low[0, 0, 0, 0] == pytest.approx(255 * (mean + 0.15 * mean), abs=1)
    assert low[0, 31, 0, 0] == pytest.approx(255 * (mean - 0.15 * mean), abs=1)
    red = np.zeros((1, 32, 32, 3), np.uint8)
    red[..., 0] = 100
    bright = corrupted(red, "brightness", 5)[0, 0, 0]
    assert bright.tolist() == [176, 0, 0]  # 100 + 0.3 · 255, hue and saturation as before


def test_clouds_are_rough_by_their_decay() -> None:
    smooth, rough = (clouds((20, 32), decay, np.random.default_rng(0)) for decay in (3, 1.75))
    for field in (smooth, rough):
        assert field.shape == (20, 32, 32)
        np.testing.assert_allclose([field.min((1, 2)), field.max((1, 2))], [[0] * 20, [1] * 20])
    steps = [np.abs(np.diff(field, axis=1)).mean() for field in (smooth, rough)]
    assert steps[0] < steps[1]


def masks(**shares: float) -> dict[tuple[str, int], np.ndarray]:
    """Masks of 100 images of which the first so many are right, as `fgsm_3=0.5`."""
    found = {}
    for name, share in shares.items():
        metric, _, radius = name.rpartition("_")
        found[metric, int(radius)] = np.arange(100) < round(100 * share)
    return found


SOUND = {"fgsm_3": 0.5, "pgd_3": 0.4, "pgd_8": 0.2, "pgd_255": 0.0, "draws_3": 0.6, "square_3": 0.5}


@pytest.mark.parametrize(
    ("changed", "name", "verdict"),
    [
        ({}, "fgsm_not_below_pgd", "reproduced"),
        ({"fgsm_3": 0.39}, "fgsm_not_below_pgd", "not decidable"),
        ({"fgsm_3": 0.2}, "fgsm_not_below_pgd", "not reproduced"),
        ({"square_3": 0.2}, "square_not_below_pgd", "not reproduced"),
        ({"pgd_255": 0.01}, "pgd_255_is_zero", "not reproduced"),
        ({"pgd_8": 0.41}, "pgd_falls", "not decidable"),
        ({"pgd_8": 0.6}, "pgd_falls", "not reproduced"),
        ({"draws_3": 0.1}, "draws_not_below_pgd", "not reproduced"),
    ],
)
def test_signs_are_judged_by_paired_intervals(changed: dict, name: str, verdict: str) -> None:
    sound, other = masks(**SOUND), masks(**{**SOUND, **changed})
    found = {finding.what: finding for finding in sign_findings([other, other])}
    assert found[CHECKS[name]].verdict == verdict
    assert found[CHECKS[name]].paper == PAPER[name]
    assert all(finding.verdict == "reproduced" for finding in sign_findings([sound]))
    order = "in 1 of 2 networks" if changed else "in 2 of 2 networks"
    mixed = {finding.what: finding for finding in sign_findings([sound, other])}
    assert order in mixed[CHECKS[name]].why


def test_the_page_says_that_table_4_has_two_items_the_other_way_round() -> None:
    assert "opposite (Table 4 c)" in PAPER["pgd_255_is_zero"]
    assert "opposite (Table 4 d)" in PAPER["pgd_falls"]


def test_a_paired_interval_is_over_images() -> None:
    rng = np.random.default_rng(0)
    one = rng.integers(-1, 2, 400)
    value, low, high = mean_interval(np.stack([one, one, one]))
    assert value == pytest.approx(one.mean())
    assert (value, low, high) == pytest.approx(mean_interval(one[None]))
    assert high - low == pytest.approx(2 * 1.96 * one.std() / 20, rel=0.1)
    assert mean_interval(np.abs(one)[None]).low >= 0


def test_ranges_and_correlations_are_judged_by_intervals() -> None:
    rows = [("fog", 0.9, 0.85, 0.95), ("contrast", 0.9, 0.85, 0.95), ("contrast", -0.5, -0.7, -0.1)]
    frame = pd.DataFrame(rows, columns=["corruption", "spearman", "low", "high"])
    frame = frame.assign(attack="PGD 8/255", paper=0.0)
    for clean, wanted in (
        (0.6, ["reproduced", "not reproduced", "reproduced"]),
        (0.2, ["not decidable"] * 3),
    ):
        found = table_6(frame, pd.DataFrame({("clean", 0): [0.7, clean]}))
        assert [finding.verdict for finding in found] == wanted


def test_corruptions_are_judged_by_what_they_cost() -> None:
    rng = np.random.default_rng(0)
    clean = rng.uniform(0.5, 0.8, 30)
    columns = {("clean", 0): clean}
    for name in CORRUPTIONS:
        for severity, share in ((1, 0.95), (5, 0.3 if name == "contrast" else 0.8)):
            columns[name, severity] = clean * (share + rng.normal(0, 0.01, 30))
    wide = pd.DataFrame(columns)
    assert costs(wide, 1)["snow"].mean() == pytest.approx(0.05, abs=0.01)
    least, fog, contrast = figure_7(wide)
    assert (least.verdict, contrast.verdict) == ("reproduced", "reproduced")
    assert fog.verdict in ("not reproduced", "not decidable")
    assert {finding.verdict for finding in figure_7(0.3 * wide)} == {"not decidable"}
    assert not list(figure_7(0 * wide))


def test_full_has_the_same_sizes_by_name() -> None:
    assert corruptions.FULL["SIZES"].keys() == corruptions.SIZES.keys()
    assert all(hasattr(corruptions, name) for name in corruptions.FULL)


TINY = {"train": 32, "test": 16, "epochs": 1, "batch": 16, "channels": 2, "cells_per_stage": 1}


@pytest.mark.thorough
def test_small_trainings_end_in_their_findings(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beta, "SmallTraining", partial(SmallTraining, sizes=TINY))
    for name, value in (("CELL", "000300"), ("BETAS", (0.0, 1.0)), ("SEEDS", (0,))):
        monkeypatch.setattr(beta, name, value)
    outcome = beta.run(study)
    assert [finding.verdict for finding in outcome.findings[:2]] != ["", ""]
    assert {finding.paper for finding in outcome.findings[2:]} < {*PAPER.values()}
    # Of as many images even a constant answer is right for some.
    monkeypatch.setattr(corruptions, "SIZES", TINY | {"test": 64, "queries": 3})
    monkeypatch.setattr(corruptions, "chosen", lambda study: {"000300": 4, "000200": -1})
    outcome = corruptions.run(study)
    assert len(outcome.findings) == len(corruptions.PAPER) + 3 + len(CHECKS)
    assert outcome.summary is not None and outcome.summary["empty"].tolist() == [4]
    accuracies = outcome.frame.dropna(subset="accuracy")
    assert (accuracies["cell"] == "000300").sum() == 13 + 2 * len(CORRUPTIONS)
    assert accuracies["accuracy"].between(0, 1).all()


def test_clean_and_robust_accuracy_are_compared_by_beta(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(beta: float) -> dict[tuple[str, int], np.ndarray]:
        shares = SOUND | {"pgd_8": 0.1 + 0.2 * beta, "fgsm_8": 0.4, "draws_8": 0.5, "pgd_32": 0.05}
        return masks(clean_0=0.8 - 0.2 * beta, **shares)

    networks = {(beta_, seed): found(beta_) for beta_ in beta.BETAS for seed in beta.SEEDS}
    monkeypatch.setattr(beta, "masks", lambda study: networks)
    outcome = beta.run(study)
    assert len(outcome.frame) == len(networks) * len(found(0))
    robust, clean, *signs = outcome.findings
    assert (robust.verdict, clean.verdict) == ("reproduced", "reproduced")
    assert "β = 1: 0.300" in robust.ours and "β = 1: 0.600" in clean.ours
    assert [each.what for each in signs] == [*CHECKS.values()]
    assert all("in 3 of 3 networks" in each.why for each in signs)
    turned = {(1 - beta_, seed): right for (beta_, seed), right in networks.items()}
    monkeypatch.setattr(beta, "masks", lambda study: turned)
    assert {each.verdict for each in beta.run(study).findings[:2]} == {"not reproduced"}


def test_trained_cells_become_tables_4_to_6(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for place, cell in enumerate(("333333", "323133", "200020", "030102", "111111")):
        metrics = {("clean", 0): 0.5, ("fgsm", 3): 0.4, ("pgd", 3): 0.4}
        metrics |= {("fgsm", 8): 0.3, ("pgd", 8): 0.3, ("square", 3): 0.4}
        for name in CORRUPTIONS:
            metrics |= {(name, 1): 0.49, (name, 5): 0.4}
        for (metric, level), value in metrics.items():
            sign = -1 if (metric, level) == ("contrast", 5) else 1
            row = {"cell": cell, "empty": place - 1, "metric": metric, "level": level}
            rows.append(row | {"accuracy": value + sign * 0.02 * place})
    monkeypatch.setattr(
        corruptions, "evaluated", lambda s: (pd.DataFrame(rows), {0: masks(**SOUND)})
    )
    outcome = corruptions.run(study)
    assert len(outcome.findings) == len(corruptions.PAPER) + 3 + len(CHECKS)
    high = outcome.findings[: len(corruptions.PAPER)]
    assert {each.verdict for each in high} == {"reproduced"}
    assert len({each.of for each in outcome.findings}) == 3
    assert outcome.summary is not None and len(outcome.summary) == 4
    assert len(outcome.frame) == len(rows) + 4 * len(corruptions.PAPER)


def test_cells_are_the_sparse_ones_and_a_range(study: Study) -> None:
    cells = corruptions.chosen(study)
    sparse = {empty: cell for cell, empty in cells.items() if empty >= 0}
    assert sparse == {0: "323133", 1: "333103", 2: "303103", 3: "030102", 4: "200020"}
    assert len(cells) == 5 + corruptions.CELLS


@pytest.mark.parametrize("digits", ["323134", "104423"])
def test_a_network_of_all_operations_holds_every_cell(double: None, digits: str) -> None:
    space = NASBench201(channels=2, cells_per_stage=2)
    variables = jax.tree.map(
        lambda leaf: leaf.astype(jnp.float64), space.initial(jax.random.key(0))
    )
    images = jnp.asarray(IMAGES / 255)

    def logits(rules: CellRules) -> jax.Array:
        given = rules, variables["params"], variables[STATISTICS], images
        return trained_logits(run, type(rules), *given, train=True)[0]

    def mixed(digits: str) -> jax.Array:
        shares = np.eye(len(OPERATIONS))[[int(digit) for digit in digits]]
        return logits(differentiable.Mixture.at(space.flax_network, jnp.asarray(shares)))

    known = Training.of(space.flax_network, np.array([int(digit) for digit in digits]))
    assert error(mixed(digits), logits(known)) < EXACT
    assert error(mixed("323131"), logits(known)) > 0.01


def test_the_roughness_of_a_loss_is_the_change_of_its_gradient(double: None) -> None:
    rng = np.random.default_rng(0)
    weights, x = jnp.asarray(rng.normal(size=(12, 3))), jnp.asarray(rng.uniform(size=(4, 2, 2, 3)))
    y, std = jnp.arange(4) % 3, jnp.asarray([0.2, 0.3, 0.4])
    logits = lambda x: jnp.tanh(x.reshape(len(x), -1) @ weights)  # noqa: E731

    def change(x: jax.Array, y: jax.Array) -> float:
        loss = lambda u: -jax.nn.log_softmax(logits((x + u * std)[None])[0])[y]  # noqa: E731
        here = jax.grad(loss)(jnp.zeros_like(x))
        move = differentiable.STEP * jnp.sign(here) / np.sqrt(here.size)
        return float(jnp.linalg.norm(jax.grad(loss)(move) - here))

    expected = np.mean([change(*one) for one in zip(x, y, strict=True)])
    assert float(differentiable.roughness(logits, x, y, std)) == pytest.approx(expected)


def test_a_row_of_table_7_is_the_cell_with_its_accuracies() -> None:
    accuracies = {metric: np.full(15_625, 0.7) for metric in differentiable.PAPER_METRICS}
    printed = differentiable.DIFFERENTIABLE
    skips, other = (Cell.from_digits(digits).index for digits in ("111111", "144114"))
    for index in (skips, other):
        for metric, value in zip(differentiable.PAPER_METRICS, printed["DARTS"], strict=True):
            accuracies[metric][index] = value + (0.001 if index == skips else 0.003)
    cells = pd.Series(
        ["111111", "333333"],
        pd.MultiIndex.from_product([["DARTS"], [0, 1]], names=["method", "seed"]),
    )
    row, advrush, found = differentiable.findings(accuracies, cells)
    assert (row.ours, row.verdict) == ("1 function: 111111", "reproduced")
    assert row.why.endswith("the next is 0.0030 away")
    assert (advrush.ours, advrush.verdict) == ("0 functions", "not reproduced")
    assert "111111 0.214, 333333 0.700" in found.ours
    accuracies["val_acc"][skips] += 0.001
    assert next(differentiable.findings(accuracies, cells)).verdict == "not reproduced"


@pytest.mark.thorough
def test_searches_over_a_network_of_all_operations(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"IMAGES": 256, "CHANNELS": 2, "EPOCHS": 5, "SEEDS": 1}
    for name, value in sizes.items():
        monkeypatch.setattr(differentiable, name, value)
    with jax.numpy_dtype_promotion("standard"):  # optax counts steps by integers
        frame = differentiable.searches(Study(data_dir))
    assert frame.groupby("method")["epoch"].max().to_dict() == {"DARTS": 5, "AdvRush": 6}
    totals = frame.groupby(["method", "seed", "epoch", "edge"])["weight"].sum()
    np.testing.assert_allclose(totals, 1, rtol=1e-5)
    assert all(len(digits) == 6 for digits in differentiable.chosen(frame))
    last, first = (frame[frame["epoch"] == epoch]["weight"].std() for epoch in (5, 1))
    assert last > first
