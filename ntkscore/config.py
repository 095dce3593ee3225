"""Everything that decides a score, in one frozen value."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

from attacks import Attack
from cells.initializers import INITIALIZERS
from cells.network import BN_MODES, BatchNorm, Network
from ntkscore.errors import InputError
from ntkscore.kernels import OUTPUTS, PARAMETER_SETS, Output, Parameters

ATTACKS = ("fgsm", "pgd")
IMPLEMENTATIONS = ("auto", "jacobian", "ntvp")


def parse_fraction(text: str) -> float:
    """A number from `0.03` or `8/255`.

    Raises:
        InputError: if it is neither.
    """
    try:
        return float(Fraction(text.replace(" ", "")))
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(
            f"expected a number or a fraction such as 8/255, got {text!r}; write it that way"
        ) from error


def _one_of(name: str, value: str, allowed: Iterable[str]) -> None:
    if value not in allowed:
        raise InputError(
            f"expected {name} to be one of {', '.join(allowed)}, got {value!r}; choose one of them"
        )


@dataclass(frozen=True)
class Config:
    """How a cell is scored.

    Attributes:
        samples: N, images drawn from the data set; `score` takes all that it is given.
        balanced: whether the classes are drawn equally often.
        channels: width C of the first stage.
        cells_per_stage: cells in each of the three stages.
        init: how weights are drawn, a name in `cells.initializers.INITIALIZERS`.
        bn: the normalisation's mode: `calibrated`, `init` or `batch`.
        output: the reading of the logits: `sum`, `trace`, `label` or `loss`.
        parameters: which parameters count: `all`, `weights` or `conv_linear`.
        attack: `fgsm` or `pgd`.
        rhos: ℓ∞ radii on the pixel scale [0, 1]; each is scored.
        steps: gradient steps of PGD; FGSM has one.
        step_size: length of a PGD step in pixel units; None for ρ/4, which at ρ = 8/255 is the
            2/255 of the benchmark's training.
        random_start: whether PGD begins at a random point of the ball.
        betas: weights β of adversarial training in the joint kernels.
        x64: compute in float64.
        implementation: `jacobian`, `ntvp`, or `auto`, which takes `jacobian` wherever an image's
            logits depend on that image alone.

    Raises:
        InputError: if a value is outside what its line says.
    """

    samples: int = 50
    balanced: bool = False
    channels: int = 16
    cells_per_stage: int = 5
    init: str = "torch"
    bn: BatchNorm = "calibrated"
    output: Output = "sum"
    parameters: Parameters = "all"
    attack: Literal["fgsm", "pgd"] = "fgsm"
    rhos: tuple[float, ...] = (8 / 255,)
    steps: int | None = None
    step_size: float | None = None
    random_start: bool = False
    betas: tuple[float, ...] = (0.5,)
    x64: bool = False
    implementation: Literal["auto", "jacobian", "ntvp"] = "auto"

    def __post_init__(self) -> None:
        _one_of("init", self.init, INITIALIZERS)
        _one_of("bn", self.bn, BN_MODES)
        _one_of("output", self.output, OUTPUTS)
        _one_of("parameters", self.parameters, PARAMETER_SETS)
        _one_of("attack", self.attack, ATTACKS)
        _one_of("implementation", self.implementation, IMPLEMENTATIONS)
        for name in ("samples", "channels", "cells_per_stage"):
            if getattr(self, name) < 1:
                raise InputError(
                    f"expected {name} to be at least 1, got {getattr(self, name)}; raise it"
                )
        if self.samples < 2:
            raise InputError(
                f"expected at least 2 samples, got {self.samples}; one image has no kernel"
            )
        for name, values in (("rho", self.rhos), ("beta", self.betas)):
            if not values:
                raise InputError(f"expected at least one {name}, got none; give one")
            for value in values:
                if not 0 <= value <= 1:
                    hint = "write 8/255 for eight grey levels" if name == "rho" else "0 is clean"
                    raise InputError(f"expected {name} from 0 to 1, got {value:g}; {hint}")
        if self.attack == "fgsm" and (self.steps not in (None, 1) or self.step_size is not None):
            raise InputError(
                "expected neither steps nor a step size with fgsm, which is one step of length ρ, "
                f"got steps {self.steps} and step size {self.step_size}; choose the attack pgd"
            )
        if self.attack == "fgsm" and self.random_start:
            raise InputError("expected no random start with fgsm, got one; choose the attack pgd")
        if self.steps is not None and self.steps < 1:
            raise InputError(f"expected at least 1 step, got {self.steps}; raise it")
        if self.step_size is not None and not (0 < self.step_size <= 1):
            raise InputError(
                f"expected a step size above 0 and at most 1, got {self.step_size:g}; "
                "write 2/255 for two grey levels"
            )
        if self.bn == "batch" and self.implementation == "jacobian":
            raise InputError(
                "expected the implementation ntvp with bn batch, where one image's gradient "
                "depends on all, got jacobian; choose auto or ntvp"
            )

    @property
    def attack_steps(self) -> int:
        """Gradient steps of the attack."""
        return 1 if self.attack == "fgsm" else self.steps or 7

    def attack_step_size(self, rho: float) -> float:
        """Length of a step at this radius, in pixel units."""
        if self.attack == "fgsm":
            return rho
        return rho / 4 if self.step_size is None else self.step_size

    def attack_at(self, rho: Any, step_size: Any) -> Attack:
        """The attack with this radius and step, which may be traced."""
        return Attack(rho, self.attack_steps, step_size, self.random_start)

    @property
    def resolved_implementation(self) -> str:
        """What `auto` stands for."""
        if self.implementation != "auto":
            return self.implementation
        return "ntvp" if self.bn == "batch" else "jacobian"

    def network(self, mean: tuple[float, ...], std: tuple[float, ...], num_classes: int) -> Network:
        """The network that is scored, with its normaliser (pixel scale [0, 1]) built in."""
        return Network(
            self.channels, self.cells_per_stage, num_classes, mean, std, self.init, self.bn
        )

    def to_dict(self) -> dict[str, Any]:
        """As plain values for JSON."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def format_rho(rho: float) -> str:
    """A radius in grey levels where it is a whole number of them."""
    levels = rho * 255
    return f"{round(levels)}/255" if math.isclose(levels, round(levels)) else f"{rho:g}"
