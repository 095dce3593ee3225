"""One run of Algorithm 1 beside what the bounds say of it."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cells.residual import ACTIVATIONS
from cells.residual.networks import ResidualSpace, Skips
from experiments.theory.energies import (
    eigen_term,
    label_energy_binary,
    leading_term,
    margin_energy,
    scaled_term,
    theorem1_width,
)
from experiments.theory.infinite_width import infinite_ntk
from experiments.theory.sphere import CapAttack
from experiments.theory.tasks import Points, on_sphere
from experiments.theory.training import algorithm_1, attacked_stack
from ntkscore.errors import InputError
from ntkscore.kernels.joint import joint_kernel
from ntkscore.task import Task

ERRORS = {"clean": "joint_clean", "robust": "joint_robust"}
"""The two errors, and the kernel whose energy bounds each."""
RULES = ("theorem", "scaled", "constant")
"""Rules for the step size: see `step_size`."""


def bound_terms(
    gram: Float[np.ndarray, "m m"], y: Float[np.ndarray, " n"], layers: int, beta: float
) -> dict[str, float | str]:
    """Energies of the joint kernels and what theorem 1 makes of them, clean and robust.

    Args:
        gram: of X, X_ρ and X_2ρ, 3n × 3n.
        y: labels 1 and −1.
        layers: L.
        beta: of the joint kernels.

    Returns:
        For `clean` (K_all) and `robust` (K̃_all): `label_energy`, `margin_energy`, `largest` (the
        largest entry of the diagonal), `label_term`, `margin_term`, `scaled_term`, `eigen_term`
        and `status`, each name with that in front, as in `clean_label_term`.
    """
    terms: dict[str, float | str] = {}
    for error, name in ERRORS.items():
        kernel = joint_kernel(gram, name, beta, len(y))
        label, best = label_energy_binary(kernel, y), margin_energy(kernel, y)
        of_error: dict[str, float | str] = {
            "label_energy": label.value,
            "margin_energy": best.value,
            "largest": float(np.max(np.diag(kernel))),
            "label_term": leading_term(label.value, layers, len(y)),
            "margin_term": leading_term(best.value, layers, len(y)),
            "scaled_term": scaled_term(best.value, kernel),
            "eigen_term": eigen_term(kernel, layers),
            "status": best.status if label.status == "ok" else label.status,
        }
        terms |= {f"{error}_{key}": value for key, value in of_error.items()}
    return terms


def step_size(
    rule: str,
    terms: Mapping[str, float | str],
    n: int,
    width: int,
    lipschitz: float = 1.0,
    nu: float = 1.0,
) -> float:
    """γ by a rule; NaN where its energy has no value.

    `theorem` is ν √q / (√C e^C m √N), with q the smaller of the label energies of K_all and K̃_all;
    `scaled` is ν √(s/(N k_max))/m, which a regret bound asks for, with the margin energy s and the
    largest entry k_max of K_all's diagonal; `constant` is ν/m.

    Args:
        rule: of `RULES`.
        terms: of `bound_terms`.
        n: N points, each a step.
        width: m; 1 where the output is as printed, without √m.
        lipschitz: C, the largest of the activations'.
        nu: ν, which the paper calls small enough.

    Source: Wu et al. (2024), "Robust NAS under adversarial training", theorem 1. Its proof has
    e^{6C} C_fmax √2 in the denominator. Corollary 1, of convolutional networks with p pixels, has
    √(C p κ) e^{C √κ} for √C e^C, and lacks the energy's square root: it falls with the filter size
    κ, where the remark below it says that it grows.

    Example:
        >>> step_size("constant", {}, n=100, width=50)
        0.02
    """
    if rule not in RULES:
        raise InputError(f"a rule of {', '.join(RULES)}", repr(rule), "choose one of them")
    if rule == "constant":
        return nu / width
    if rule == "scaled":
        energy, largest = float(terms["clean_margin_energy"]), float(terms["clean_largest"])
        return float(nu * np.sqrt(energy / (n * largest)) / width)
    energy = min(float(terms[f"{error}_label_energy"]) for error in ERRORS)
    return float(nu * np.sqrt(energy / n) / (np.sqrt(lipschitz) * np.exp(lipschitz) * width))


def run_trial(
    space: ResidualSpace,
    architecture: Skips | str,
    points: Points,
    *,
    rho: float = 0.15,
    attack_steps: int = 10,
    beta: float = 0.5,
    rule: str = "theorem",
    nu: float = 1.0,
    seed: int = 0,
) -> dict[str, object]:
    """Train a network by Algorithm 1, and set its errors beside the bounds' terms.

    Args:
        space: of the network; `output_scale="sqrt_width"` is what the theorem's proof needs.
        architecture: its skips, such as `10`.
        points: each met once, in order.
        rho, attack_steps: of the caps, a chord from 0 to 2, and of the attack.
        beta: weight of adversarial training, from 0 to 1.
        rule, nu: of the step size (`step_size`).
        seed: of the weights.

    Returns:
        Settings, `clean_error` and `pgd_error` in expectation over the returned network, what
        `bound_terms` has of the kernels of infinite width at points attacked at initialisation,
        and the width that the proof needs.

    Example:
        >>> from cells.residual import Residual
        >>> from experiments.theory.tasks import draw
        >>> space = Residual(width=32, output_scale="sqrt_width")
        >>> row = run_trial(space, "1", draw("margin", 50, dimension=5), rule="constant")
        >>> row["clean_error"] < 0.5, row["clean_status"]
        (True, 'ok')
    """
    x, y = points
    space = space.on(Task(x.shape[1:], 1))
    skips, attack = space.parse(architecture), CapAttack(rho, attack_steps)
    model = space.network(skips, x, seed=seed)
    singles = (jnp.asarray(each, jnp.float32) for each in points)
    attacked = attacked_stack(attack, model, model.params, *singles)[len(x) :]
    gram = infinite_ntk(space, skips, on_sphere(np.concatenate([x, attacked])))
    terms = bound_terms(gram, y, skips.layers, beta)
    lipschitz = max(ACTIVATIONS[name].lipschitz for name in space.activations_of(skips))
    width = space.width if space.output_scale == "sqrt_width" else 1
    gamma = step_size(rule, terms, len(y), width, lipschitz, nu)
    if not np.isfinite(gamma):
        raise InputError(
            "a step size",
            f"but the rule {rule} has none, since an energy is not known (clean "
            f"{terms['clean_status']}, robust {terms['robust_status']})",
            "choose the rule constant",
        )
    errors = algorithm_1(model, x, y, attack, beta, gamma).progressive
    return {
        **space.identity(skips),
        "seed": seed,
        "step_size": gamma,
        "clean_error": errors[0],
        "pgd_error": errors[1],
        **terms,
        "width": space.width,
        "width_required": theorem1_width(len(y), skips.layers, beta, lipschitz),
    }
