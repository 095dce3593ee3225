"""The choices behind a run of Algorithm 1, as a value that the command line can make."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cells.space import check_choices, option
from ntkscore.errors import InputError

if TYPE_CHECKING:
    from ntkscore.theory.tasks import Points

RULES = ("theorem", "scaled", "constant")


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Points, attack and steps of a run; every field is an option of the command line as well.

    Attributes:
        task: `margin`, `tradeoff`, or two classes of a data set, such as `mnist:0,1`.
        points: N, each met once.
        dimension: d of the points of `margin` and `tradeoff`.
        mu: least distance of `margin`'s points from the other class, in the first coordinate.
        side: pixels of a side that images are reduced to; 0 leaves them as they are.
        rho: radius of the caps, a chord from 0 to 2.
        attack_steps: gradient steps of the attack.
        beta: weight of adversarial training, from 0 to 1.
        rule: step size: `theorem` of theorem 1, `scaled` of a regret bound, `constant` for ν/m.
        nu: ν, which multiplies it.

    Raises:
        InputError: if a value is outside what its line says.

    Example:
        >>> Trial(task="tradeoff", dimension=20, rho=0.3).draw(seed=0).x.shape
        (300, 20)
    """

    task: str = option(
        "margin", "Points: margin, tradeoff, or two classes of a data set, such as mnist:0,1."
    )
    points: int = option(300, "Points, each met once.")
    dimension: int = option(10, "Dimension of the points of margin and tradeoff.")
    mu: float = option(0.25, "Margin of the points of margin, from 0 to below 1.")
    side: int = option(0, "Pixels of a side that images are reduced to; 0 leaves them.")
    rho: float = option(0.15, "Radius of the caps, a chord from 0 to 2.")
    attack_steps: int = option(10, "Gradient steps of the attack.")
    beta: float = option(0.5, "Weight of adversarial training.")
    rule: str = option("theorem", "Step size.", choices=lambda: RULES)
    nu: float = option(1.0, "Factor of the step size.")

    def __post_init__(self) -> None:
        check_choices(self)
        for name, least in (("points", 2), ("attack_steps", 1), ("side", 0)):
            if getattr(self, name) < least:
                raise InputError(
                    f"expected {name} to be at least {least}, got {getattr(self, name)}; raise it"
                )
        if not 0 <= self.rho <= 2:
            raise InputError(
                f"expected rho from 0 to 2, a chord of the unit sphere, got {self.rho:g}; lower it"
            )
        if not 0 <= self.beta <= 1:
            raise InputError(
                f"expected beta from 0 to 1, got {self.beta:g}; 0 is training without attacks"
            )
        if not 0 < self.nu < np.inf:
            raise InputError(f"expected nu above 0, got {self.nu:g}; raise it")

    def draw(self, seed: int, data_dir: Path | None = None) -> "Points":
        """The points of a seed.

        Args:
            seed: of the draw.
            data_dir: where data sets lie; see `ntkscore.paths.data_home`.

        Raises:
            InputError: if the task is unknown, or its images are not there.
        """
        # What draws them takes long to import, and help needs none of it.
        from ntkscore.data.images import load
        from ntkscore.theory.tasks import margin, tradeoff, two_classes

        rng = np.random.default_rng(seed)
        if self.task == "margin":
            return margin(self.points, self.dimension, self.mu, rng)
        if self.task == "tradeoff":
            return tradeoff(self.points, self.dimension, rng)
        name, colon, classes = self.task.partition(":")
        pair = classes.split(",")
        if not colon or len(pair) != 2 or not all(each.strip().isdigit() for each in pair):
            raise InputError(
                "expected the task margin, tradeoff, or two classes of a data set such as "
                f"mnist:0,1, got {self.task!r}; write one of these"
            )
        wanted = [int(each) for each in pair]
        return two_classes(load(name, data_dir), wanted, self.points, rng, self.side or None)
