"""The joint kernels: blocks of the stack, equations 4 and 5, and what they are Gram matrices of."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ntkscore.kernels.joint import ASYMMETRIC, BLOCKS, JOINT, KERNELS, block, joint_kernel, mix

N, P = 5, 12
PARTS = {"clean": ("X", "X"), "cross": ("X", "X_ρ"), "robust": ("X_ρ", "X_ρ")} | {
    "cross_twice": ("X_ρ", "X_2ρ"),
    "twice": ("X_2ρ", "X_2ρ"),
}
FILES = ["cell_00173_c4_n1", "cell_01462_c4_n1", "cell_00219_c8_n1"]
BETAS = (0.0, 0.25, 0.5, 1.0)


def jacobians(seed: int = 0, n: int = N) -> dict[str, np.ndarray]:
    """J(X), J(X_ρ) and J(X_2ρ), fewer parameters than points in the stack."""
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=(n, P)) for name in ("X", "X_ρ", "X_2ρ")}


def gram(jacobians: dict[str, np.ndarray]) -> np.ndarray:
    stack = np.concatenate(list(jacobians.values()))
    return stack @ stack.T


def test_names() -> None:
    assert set(PARTS) == set(BLOCKS)
    assert set(KERNELS) == {*BLOCKS, "joint_clean", "joint_robust"}
    assert set(ASYMMETRIC) == {name for name, (left, right) in PARTS.items() if left != right}


@pytest.mark.parametrize("name", BLOCKS)
def test_blocks_are_the_kernels_between_their_points(name) -> None:
    J = jacobians()
    left, right = PARTS[name]
    np.testing.assert_allclose(block(gram(J), name, N), J[left] @ J[right].T, rtol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 8), beta=st.floats(0, 1))
def test_joint_kernels_are_gram_matrices_of_mixed_jacobians(seed, n, beta) -> None:
    J = jacobians(seed, n)
    for name, (inner, outer) in {
        "joint_clean": ("X", "X_ρ"),
        "joint_robust": ("X_ρ", "X_2ρ"),
    }.items():
        mixed = (1 - beta) * J[inner] + beta * J[outer]
        got = joint_kernel(gram(J), name, beta, n)
        np.testing.assert_allclose(got, mixed @ mixed.T, rtol=1e-12, atol=1e-12)
        values = np.linalg.eigvalsh((got + got.T) / 2)
        assert values[0] >= -1e-13 * values[-1]


def test_beta_0_and_1_are_the_unmixed_kernels() -> None:
    K = gram(jacobians())
    for name, inner, outer in (
        ("joint_clean", "clean", "robust"),
        ("joint_robust", "robust", "twice"),
    ):
        np.testing.assert_array_equal(joint_kernel(K, name, 0.0, N), block(K, inner, N))
        np.testing.assert_array_equal(joint_kernel(K, name, 1.0, N), block(K, outer, N))


def test_without_an_attack_every_kernel_is_the_clean_one() -> None:
    J = dict.fromkeys(("X", "X_ρ", "X_2ρ"), jacobians()["X"])
    for name in JOINT:
        for beta in BETAS:
            got = joint_kernel(gram(J), name, beta, N)
            np.testing.assert_allclose(got, J["X"] @ J["X"].T, rtol=1e-12)


def test_the_clean_joint_kernel_needs_only_two_parts_of_the_stack() -> None:
    K = gram(jacobians())
    np.testing.assert_array_equal(
        joint_kernel(K[: 2 * N, : 2 * N], "joint_clean", 0.3, N),
        joint_kernel(K, "joint_clean", 0.3, N),
    )


def test_mixing_is_symmetric_even_where_the_cross_kernel_is_not() -> None:
    inner, outer = np.eye(2), 2 * np.eye(2)
    got = mix(inner, np.array([[1.0, 4.0], [0.0, 3.0]]), outer, 0.5)
    np.testing.assert_allclose(got, [[1.25, 1.0], [1.0, 2.25]])


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("beta", BETAS)
def test_reference_joint_kernels(data_dir, name, beta) -> None:
    with np.load(data_dir / "parity" / f"{name}.npz") as file:
        stack, n = file["ntk_sum_all_stack"], len(file["images"])
        expected = {
            "joint_clean": file[f"k_all_beta_{beta}"],
            "joint_robust": file[f"k_tilde_all_beta_{beta}"],
        }
    for kernel, reference in expected.items():
        got = joint_kernel(stack, kernel, beta, n)
        assert np.linalg.norm(got - reference) <= 1e-12 * np.linalg.norm(reference)
