"""Scores of matrices whose spectrum is prescribed, and what becomes of those without a score."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import refuses

from ntkscore.measures import MEASURES
from ntkscore.measures.activations import STATES
from ntkscore.measures.forward_pass import LOSS
from ntkscore.measures.kernel import add_score, measure, scores_of
from ntkscore.measures.registry import (
    CONSTANT,
    NOT_FINITE,
    NOT_GIVEN,
    NOT_PSD,
    OK,
    SINGULAR,
    STATUSES,
    Measurement,
    direction_of,
    finite,
    measures_of,
)
from ntkscore.measures.report import measurements_of
from ntkscore.measures.slopes import SLOPES

VALUES = np.array([0.5, 1.0, 2.0, 4.0, 8.0, 16.0])
LABELS = np.array([2, 0, 2, 1, 0, 2])
N = len(VALUES)
SCORES, ASYMMETRIC_SCORES = scores_of("clean"), scores_of("cross")
SPECTRAL = set(SCORES) - {"label_energy", "gradient_norm"}
DIVIDE = {"condition", "label_energy"}


def basis(seed: int, n: int = N) -> np.ndarray:
    """A random orthogonal matrix."""
    return np.linalg.qr(np.random.default_rng(seed).normal(size=(n, n)))[0]


def with_spectrum(values: np.ndarray, seed: int = 0) -> np.ndarray:
    rotation = basis(seed, len(values))
    return rotation @ np.diag(values) @ rotation.T


def values(kernel: np.ndarray, symmetric: bool = True) -> dict[str, float]:
    scores = measure(kernel, LABELS[: len(kernel)], symmetric)
    assert {score.status for score in scores.values()} == {OK}
    return {name: score.value for name, score in scores.items()}


def energy(kernel: np.ndarray, labels: np.ndarray) -> float:
    """tr(Yᵀ M⁻¹ Y)/N as it is written, with columns for absent classes too."""
    targets = np.eye(max(labels) + 3)[labels]
    targets -= targets.mean(0)
    return np.trace(targets.T @ np.linalg.inv(kernel) @ targets) / len(labels)


def assert_failed(score: Measurement, status: str) -> None:
    assert math.isnan(score.value)
    assert score.status == status


def test_scores_of_a_prescribed_spectrum() -> None:
    kernel = with_spectrum(VALUES)
    share = VALUES / VALUES.sum()
    expected = {
        "frobenius": np.sqrt(np.sum(VALUES**2)),
        "trace": 31.5,
        "lambda_min": 0.5,
        "lambda_max": 16.0,
        "condition": 32.0,
        "lambda_min_normalized": 6 * 0.5 / 31.5,
        "effective_rank": np.exp(-np.sum(share * np.log(share))),
        "label_energy": energy(kernel, LABELS),
        "gradient_norm": np.sqrt(kernel.sum()) / N,
    }
    got = values(kernel)
    assert set(got) == set(expected) == set(SCORES)
    for name, value in expected.items():
        assert got[name] == pytest.approx(value, rel=1e-12), name


def test_scores_of_input_gradients() -> None:
    """Against the formulas as they are published, on a batch of gradients."""
    gradients = np.random.default_rng(3).normal(size=(N, 40)) + np.linspace(-2, 2, 40)
    matrix, labels = np.corrcoef(gradients), np.array([0, 0, 0, 4, 4, 9])
    got = measurements_of(SLOPES, matrix, labels)
    eigenvalues = np.linalg.eigvals(matrix).real
    jacov = -np.sum(np.log(eigenvalues + 1e-5) + 1 / (eigenvalues + 1e-5))
    assert got["jacov"].value == pytest.approx(jacov, rel=1e-9)
    parts = [np.atleast_2d(np.corrcoef(gradients[labels == c])) for c in (0, 4, 9)]
    epe = sum(abs(np.log(np.abs(part) + 1e-5).sum()) for part in parts)
    assert got["epe_nas"].value == pytest.approx(epe, rel=1e-9)
    # Unlike gradients are better than like ones.
    independent = measurements_of(SLOPES, np.eye(N), labels)
    assert independent["jacov"].value > got["jacov"].value
    for score in measurements_of(SLOPES, np.zeros((N, N)), labels).values():
        assert_failed(score, CONSTANT)


def test_effective_rank_counts_equal_eigenvalues() -> None:
    for rank in range(1, N + 1):
        spectrum = np.where(np.arange(N) < rank, 3.0, 0.0)
        score = measure(with_spectrum(spectrum), LABELS)["effective_rank"]
        assert score.value == pytest.approx(rank, rel=1e-9)


def test_scores_are_plain_floats_of_float64_precision() -> None:
    kernel = with_spectrum(VALUES).astype(np.float32)
    for name, score in measure(kernel, LABELS).items():
        assert type(score.value) is float, name
        assert score.value == pytest.approx(values(with_spectrum(VALUES))[name], rel=1e-5), name
    # A float32 sum of squares would overflow.
    assert values(kernel * np.float32(1e30))["frobenius"] == pytest.approx(1.847e31, rel=1e-3)


@given(seed=st.integers(0, 2**32 - 1))
def test_a_rotation_changes_no_spectral_score(seed) -> None:
    rotated, plain = values(with_spectrum(VALUES, seed)), values(np.diag(VALUES))
    for name in SPECTRAL:
        assert rotated[name] == pytest.approx(plain[name], rel=1e-9), name


@given(factor=st.floats(1e-20, 1e20))
def test_scaling_changes_each_score_by_its_degree(factor) -> None:
    kernel = with_spectrum(VALUES)
    degrees: dict[str, float] = {"gradient_norm": 0.5}
    degrees |= {"condition": 0, "lambda_min_normalized": 0, "effective_rank": 0, "label_energy": -1}
    scaled, plain = values(factor * kernel), values(kernel)
    for name in SCORES:
        expected = plain[name] * factor ** degrees.get(name, 1)
        assert scaled[name] == pytest.approx(expected, rel=1e-9), name


@pytest.mark.slow
@given(order=st.permutations(range(N)))
def test_the_order_of_the_images_does_not_matter(order) -> None:
    kernel, order = with_spectrum(VALUES), np.array(order)
    moved = measure(kernel[np.ix_(order, order)], LABELS[order])
    for name, score in moved.items():
        assert score.value == pytest.approx(values(kernel)[name], rel=1e-9), name


def test_label_energy_reads_classes_and_not_their_numbers() -> None:
    kernel = with_spectrum(VALUES)
    renamed = np.array([7, 40, 99])[LABELS]
    assert measure(kernel, renamed)["label_energy"].value == pytest.approx(energy(kernel, LABELS))
    # Labels that a kernel's largest direction separates are cheap; one class costs nothing.
    one_hot = np.array([1.0, -1, 1, -1, 1, -1]) / np.sqrt(N)
    aligned = np.eye(N) + 99 * np.outer(one_hot, one_hot)
    labels = np.array([0, 1, 0, 1, 0, 1])
    assert measure(aligned, labels)["label_energy"].value == pytest.approx(0.5 / 100)
    assert measure(np.eye(N) + 1, np.zeros(N, int))["label_energy"].value == pytest.approx(0)


def test_rounding_is_no_asymmetry() -> None:
    kernel = with_spectrum(VALUES)
    noise = 1e-7 * np.random.default_rng(0).normal(size=kernel.shape)
    got, expected = values(kernel + (noise - noise.T)), values(kernel)
    assert got == {name: pytest.approx(value, rel=1e-9) for name, value in expected.items()}


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_kernel_that_is_not_finite_fails_every_score(bad, symmetric) -> None:
    kernel = with_spectrum(VALUES)
    kernel[2, 3] = bad
    scores = measure(kernel, LABELS, symmetric)
    assert set(scores) == set(SCORES if symmetric else ASYMMETRIC_SCORES)
    for score in scores.values():
        assert_failed(score, NOT_FINITE)


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("level", [0.0, 1e-12, 3.7, -2.0])
def test_a_constant_kernel_fails_every_score(level, dtype, symmetric) -> None:
    kernel = np.full((N, N), level, dtype)
    # A network that ignores its images gives equal entries only up to rounding.
    kernel *= 1 + 4 * np.finfo(dtype).eps * np.random.default_rng(0).uniform(-1, 1, (N, N)).astype(
        dtype
    )
    for score in measure(kernel, LABELS, symmetric).values():
        assert_failed(score, CONSTANT)


@pytest.mark.parametrize("lowest", [-0.5, -1e-3])
def test_a_negative_eigenvalue_fails_every_score(lowest) -> None:
    for dtype in (np.float32, np.float64):
        for score in measure(with_spectrum(VALUES - 0.5 + lowest).astype(dtype), LABELS).values():
            assert_failed(score, NOT_PSD)
    for score in measure(-with_spectrum(VALUES), LABELS).values():
        assert_failed(score, NOT_PSD)


@pytest.mark.parametrize("lowest", [0.0, 1e-8, -1e-8])
def test_a_singular_kernel_fails_only_the_scores_that_divide(lowest) -> None:
    spectrum = VALUES.copy()
    spectrum[0] = lowest
    kernel = with_spectrum(spectrum).astype(np.float32)
    for name, score in measure(kernel, LABELS).items():
        if name in DIVIDE:
            assert_failed(score, SINGULAR)
        else:
            assert score.status == OK, name
            assert math.isfinite(score.value), name
    assert measure(kernel, LABELS)["lambda_min"].value == pytest.approx(lowest, abs=1e-5)


def test_what_counts_as_rounding_depends_on_the_precision_that_the_kernel_had() -> None:
    spectrum = VALUES.copy()
    spectrum[0] = 1e-8
    double = measure(with_spectrum(spectrum), LABELS)
    assert double["condition"].value == pytest.approx(1.6e9, rel=1e-4)
    single = measure(with_spectrum(spectrum).astype(np.float32), LABELS)
    assert_failed(single["condition"], SINGULAR)
    spectrum[0] = -1e-8
    assert measure(with_spectrum(spectrum), LABELS)["trace"].status == NOT_PSD
    assert measure(with_spectrum(spectrum).astype(np.float32), LABELS)["trace"].status == OK


def test_more_images_than_parameters_make_a_kernel_singular_and_not_negative() -> None:
    rng = np.random.default_rng(1)
    for dtype in (np.float32, np.float64):
        rows = rng.normal(size=(40, 7)).astype(dtype)
        scores = measure(rows @ rows.T, rng.integers(0, 3, 40))
        assert {name for name, score in scores.items() if score.status == SINGULAR} == DIVIDE
        assert scores["effective_rank"].value <= 7


def test_the_state_score_is_the_log_determinant() -> None:
    on = np.random.default_rng(4).uniform(size=(N, 50)) < 0.5
    same = (on[:, None] == on).sum(2)
    got = measurements_of(STATES, same.astype(float), LABELS)["naswot"]
    assert got == (pytest.approx(np.linalg.slogdet(same)[1]), OK)
    # Two images that no rectifier tells apart.
    twin = same[:, [0, 0, *range(1, N)]][[0, 0, *range(1, N)]]
    failed = measurements_of(STATES, twin.astype(float), np.zeros(N + 1, int))["naswot"]
    assert_failed(failed, SINGULAR)


def test_the_gradient_norm_is_that_of_the_mean_gradient() -> None:
    rows = np.random.default_rng(5).normal(size=(N, 40))
    got = measure(rows @ rows.T, LABELS)["gradient_norm"].value
    assert got == pytest.approx(np.linalg.norm(rows.mean(0)), rel=1e-12)


def test_a_number_has_a_status() -> None:
    assert finite(2.0) == Measurement(2.0, OK)
    assert_failed(finite(math.inf), NOT_FINITE)
    assert_failed(finite(None), NOT_GIVEN)


def test_asymmetric_kernels_have_three_scores() -> None:
    kernel = basis(1) @ np.diag(VALUES) @ basis(2).T
    assert values(kernel, symmetric=False) == {
        "frobenius": pytest.approx(np.sqrt(np.sum(VALUES**2))),
        "trace": pytest.approx(kernel.diagonal().sum()),
        "sigma_min": pytest.approx(0.5),
    }


def test_an_asymmetric_kernel_need_not_be_positive() -> None:
    assert values(-with_spectrum(VALUES), symmetric=False)["trace"] == pytest.approx(-31.5)
    assert values(np.diag([0.0, 1.0, 2.0]), symmetric=False)["sigma_min"] == 0.0


def test_every_score_declares_a_direction_and_a_formula() -> None:
    assert set(SCORES) < set(MEASURES) > set(ASYMMETRIC_SCORES)
    falling = {name for name, measure in MEASURES.items() if measure.direction == -1}
    assert falling == DIVIDE | {"flips", "curvature", "stability"}
    for name, definition in MEASURES.items():
        assert definition.name == name
        assert definition.direction in ((-1, 1) if name != LOSS else (0,))
        assert definition.direction == direction_of(name) == direction_of(f"robust.{name}")
        assert definition.formula
        assert definition.inverts == (name in DIVIDE | set(measures_of(STATES)))
        assert definition.source or name == LOSS or name in {**SCORES, **ASYMMETRIC_SCORES}
    assert direction_of(LOSS) == direction_of(f"clean.{LOSS}") == 0
    assert direction_of("accuracy") == direction_of("params") == 1


def test_a_score_of_ones_own_is_measured_with_the_others() -> None:
    """And in rows and sheets: `tests/measures/test_from_outside.py`."""
    kernel, before = with_spectrum(VALUES), dict(MEASURES)
    add_score("gap", lambda s: s.values[-1] - s.values[-2], direction=-1, formula="λ_1 − λ_2")
    try:
        assert measure(kernel, LABELS)["gap"] == (pytest.approx(8), OK)
        assert direction_of("gap") == direction_of("twice.gap") == -1
        assert "gap" not in measure(kernel, LABELS, symmetric=False)
    finally:
        del MEASURES["gap"]
    assert before == MEASURES
    assert direction_of("gap") == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_of_ones_own_that_is_no_number_has_a_status(value: float) -> None:
    add_score("broken", lambda s: value, direction=+1, formula="?")
    try:
        scores = measure(with_spectrum(VALUES), LABELS)
    finally:
        del MEASURES["broken"]
    assert_failed(scores.pop("broken"), NOT_FINITE)
    assert {score.status for score in scores.values()} == {OK}


@pytest.mark.parametrize(
    ("name", "direction", "expected", "remedy"),
    [
        ("frobenius", +1, "name", ("frobenius", "trace", "jacov", "naswot", "loss", "swap")),
        ("sigma_min", +1, "name", ()),
        ("loss", +1, "name", ()),
        ("a.b", +1, "name", ()),
        ("", +1, "name", ()),
        ("mine", 0, ("direction", "+1", -1), ()),
        ("mine", 2, ("direction", "+1", -1), ()),
    ],
)
def test_what_is_no_new_score_is_refused(
    name: str, direction: Any, expected: Any, remedy: tuple
) -> None:
    before = dict(MEASURES)
    with refuses(direction if name == "mine" else name, expected=expected, remedy=remedy):
        add_score(name, lambda s: 0.0, direction=direction, formula="0")
    assert before == MEASURES


def test_every_status_is_explained() -> None:
    assert set(STATUSES) == {OK, NOT_FINITE, NOT_PSD, CONSTANT, SINGULAR, NOT_GIVEN}
    assert all(STATUSES.values())


@pytest.mark.usefixtures("unchecked")
def test_a_kernel_that_is_not_square_is_refused() -> None:
    for kernel in (np.ones((3, 4)), np.ones(3), np.ones((1, 1))):
        with refuses(kernel.shape, expected="kernel"):
            measure(kernel, np.arange(3))
