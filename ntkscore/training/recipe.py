"""Settings of a training, in one frozen value."""

from dataclasses import dataclass
from typing import NamedTuple

from ntkscore.errors import InputError
from ntkscore.options import Named, check_choices, check_least, option


class Preset(NamedTuple):
    """Training settings in which the sources differ.

    Attributes:
        start: of the step size, before it rises to the peak.
        end: of the step size.
        momentum: at the start and end, and at the peak.
        weight_decay: of all parameters.
    """

    start: float
    end: float
    momentum: tuple[float, float]
    weight_decay: float


RECIPES = {
    "code": Preset(0.1 / 25, 0.1 / 25 / 1e4, (0.95, 0.85), 5e-4),
    "paper": Preset(0.05, 0.05 / 1e4, (0.9, 0.9), 1e-4),
}
"""The benchmark's training by its published code, with which the table was made, and by the paper:
in the code the schedule overrides the optimiser's step size and momentum.

Source: Wu et al. (2024), "Robust NAS under adversarial training", section 3.1, and the training
script that its authors published.
"""


@dataclass(frozen=True, kw_only=True)
class Recipe(Named):
    """Settings of a training; every field is an option of the command line as well.

    Attributes:
        recipe: source of start, momentum and weight decay: `code` or `paper`.
        beta: weight of adversarial training, from 0 (clean images alone) to 1 (attacked images
            alone).
        epochs: passes over the training images.
        batch: images of a step; the last of an epoch may be smaller.
        peak: largest step size.
        weight_decay: of all parameters; None for the recipe's own.
        rho: radius of the attack, pixel scale [0, 1].
        attack_steps: number of the attack's gradient steps.
        attack_step: length of each, pixel scale.
        bn_train: `separate` to normalise clean and attacked images in two passes, clean first;
            `joint` for one pass over both.
        augment: pad by an eighth of the side, crop and flip.
        held_out: images that are kept out of training, for an evaluation.

    Raises:
        InputError: if a value is not one that its description allows.

    Source: Wu et al. (2024), equation 3 and section 3.1.

    Example:
        >>> Recipe(beta=0.5, epochs=3).steps(1000)
        12
    """

    recipe: str = option("code", "Source of the training settings.", choices=lambda: tuple(RECIPES))
    beta: float = option(1.0, "Weight of adversarial training.")
    epochs: int = option(50, "Passes over the training images.")
    batch: int = option(256, "Images of a step.", flag="batch-size")
    peak: float = option(0.1, "Largest step size.")
    weight_decay: float | None = option(
        None, "Weight decay of all parameters; 5e-4 for code and 1e-4 for paper if left out."
    )
    rho: float = option(8 / 255, "Radius of the attack, pixel scale [0, 1].")
    attack_steps: int = option(7, "Gradient steps of the attack.")
    attack_step: float = option(2 / 255, "Length of an attack's step, pixel scale.")
    bn_train: str = option(
        "separate",
        "Batch statistics of clean and attacked images.",
        choices=lambda: ("separate", "joint"),
    )
    augment: bool = option(True, "Crop and flip the training images at random.")
    held_out: int = option(0, "Images kept out of training, for an evaluation.")

    def __post_init__(self) -> None:
        check_choices(self)
        for name, value, hint in (
            ("beta", self.beta, "0 is training without attacks"),
            ("rho", self.rho, "write 8/255"),
        ):
            if not 0 <= value <= 1:
                raise InputError(f"{name} from 0 to 1", f"{value:g}", hint)
        check_least(self, epochs=1, batch=1, attack_steps=1, held_out=0)
        for name, value in (("peak", self.peak), ("attack_step", self.attack_step)):
            if not value > 0:
                raise InputError(f"{name} above 0", f"{value:g}", "raise it")
        if not 0 <= self.decay < 1:
            raise InputError("weight_decay from 0 to below 1", f"{self.decay:g}", "lower it")

    @property
    def preset(self) -> Preset:
        """The settings of the named source."""
        return RECIPES[self.recipe]

    @property
    def decay(self) -> float:
        """The weight decay: the given one, else the source's."""
        return self.preset.weight_decay if self.weight_decay is None else self.weight_decay

    def steps(self, images: int) -> int:
        """Steps of the whole training on so many images."""
        return self.epochs * -(-images // self.batch)
