"""The choices that decide a kernel score of any network, as one frozen dataclass."""

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

from attacks import NORMS, Attack
from attacks.lazy import Array
from ntkscore.errors import InputError
from ntkscore.kernels.attacks import ATTACKS, check_attack
from ntkscore.kernels.joint import check_beta
from ntkscore.kernels.readouts import IMPLEMENTATIONS, READOUTS
from ntkscore.options import Named, check_choices, option
from ntkscore.trace.parameters import PARAMETER_SETS


@dataclass(frozen=True)
class Config(Named):
    """Settings of a scoring; every field is an option of the command line as well.

    Attributes:
        output: the reading of the logits: `sum`, `trace`, `label` or `loss`.
        parameters: which parameters count: `all`, `weights` or `conv_linear`.
        attack: a name in `ntkscore.ATTACKS`: `fgsm` or `pgd`.
        rhos: radii on the pixel scale, or a single one; each is scored. At most 1 in `linf`, and
            √(pixels · channels) in `l2`.
        steps: gradient steps of PGD; None for its own number.
        step_size: length of a PGD step in pixel units; None for its own share of the radius.
        random_start: whether PGD begins at a random point of the ball.
        norm: of the attack's ball and steps, `linf` or `l2`.
        betas: weights β of adversarial training in the joint kernels.
        proxies: also measure what takes passes of its own: GradNorm, SNIP, ZiCo, Zen, AZ-NAS's
            trainability, VKDNW's Fisher entropy, and how outputs answer to small changes.
        x64: compute in float64.
        implementation: `layerwise`, `contraction`, `ntvp`, or `auto` for the fastest that is exact.

    Raises:
        InputError: if a value is outside what its line says, or a radius or β is repeated.

    Example:
        >>> Config(attack="pgd", rhos=(3 / 255, 8 / 255)).attack_at(8 / 255).steps
        7
    """

    elsewhere = dict.fromkeys(
        ("samples", "balanced"), "give it to load_images, as in load_images('cifar10', samples=16)"
    )

    output: str = option("sum", "Reading of the logits.", choices=lambda: tuple(READOUTS))
    parameters: str = option(
        "all", "Parameters that count in the kernel.", choices=lambda: tuple(PARAMETER_SETS)
    )
    attack: str = option("fgsm", "Attack on the images.", choices=lambda: tuple(ATTACKS))
    rhos: tuple[float, ...] = option(
        (8 / 255,),
        "Attack radius on the pixel scale [0, 1]; repeatable.",
        flag="rho",
    )
    steps: int | None = option(None, "Steps of PGD; 7 if left out.")
    step_size: float | None = option(
        None, "Length of a step of PGD; a quarter of the radius if left out."
    )
    random_start: bool = option(False, "Begin PGD at a random point of the ball.")
    norm: str = option("linf", "Norm of the attack's ball and steps.", choices=lambda: NORMS)
    betas: tuple[float, ...] = option(
        (0.5,),
        "Weight of adversarial training in the joint kernels; repeatable.",
        flag="beta",
    )
    proxies: bool = option(
        False, "Also GradNorm, SNIP, ZiCo, Zen, VKDNW and others, with passes of their own."
    )
    x64: bool = option(False, "Compute in float64.")
    implementation: str = option(
        "auto",
        "How the kernel is computed.",
        choices=lambda: ("auto", *IMPLEMENTATIONS),
    )

    def __post_init__(self) -> None:
        for name in ("rhos", "betas"):
            values: object = getattr(self, name)
            if isinstance(values, list):
                object.__setattr__(self, name, tuple(values))
            elif isinstance(values, Real) and not isinstance(values, bool):
                object.__setattr__(self, name, (float(values),))
        check_choices(self)
        for name, values in (("rho", self.rhos), ("beta", self.betas)):
            if not values:
                raise InputError(f"at least one {name}", "none", "give one")
            for value in values if name == "beta" else ():
                check_beta(value)
            shown = [f"{value:g}" for value in values]  # as in rows
            if repeated := [text for text in shown if shown.count(text) > 1]:
                raise InputError(f"every {name} once", f"{repeated[0]} again", "leave it out")
        if self.steps is not None and not (isinstance(self.steps, Integral) and self.steps >= 1):
            raise InputError("at least 1 step", repr(self.steps), "raise it")
        most = 1 if self.norm == "linf" else math.inf
        if (size := self.step_size) is not None and not (
            isinstance(size, Real) and 0 < size <= most
        ):
            raise InputError(
                f"a step size above 0{' and at most 1' if most == 1 else ''}",
                repr(size),
                "write 2 / 255 for two grey levels",
            )
        for name, value in self._attack_choices().items():
            if name not in inspect.signature(ATTACKS[self.attack]).parameters:
                having = [k for k in ATTACKS if name in inspect.signature(ATTACKS[k]).parameters]
                raise InputError(
                    f"no {name} with {self.attack}, which has none",
                    repr(value),
                    f"leave it out, or choose the attack {' or '.join(having)}",
                )
        self.check_radii()

    def check_radii(self, shape: Sequence[int] | None = None) -> None:
        """Refuse radii that the attack does not take.

        Args:
            shape: of one image, where it is known: an ℓ2 radius may not be larger.

        Raises:
            InputError: if there is one.
        """
        for rho in self.rhos:
            check_attack(self.attack_at, rho, shape)

    def _attack_choices(self) -> dict[str, Any]:
        """Choices for the attack that differ from their defaults."""
        names = ("steps", "step_size", "random_start", "norm")
        return {n: getattr(self, n) for n in names if getattr(self, n) != getattr(Config, n)}

    @property
    def attack_at(self) -> Callable[[float | Array], Attack]:
        """The attack as a function of its radius, which may be traced."""
        return partial(ATTACKS[self.attack], **self._attack_choices())

    @property
    def program(self) -> "Config":
        """The config without what is data: equal for all configs that share a compiled program."""
        # Only the number of radii counts; they differ because equal ones are refused.
        blank = tuple(i / len(self.rhos) for i in range(len(self.rhos)))
        return replace(self, rhos=blank, betas=(0.5,))

    def to_dict(self) -> dict[str, Any]:
        """The choices as plain values for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}
