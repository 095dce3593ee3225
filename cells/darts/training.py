"""One genotype's network in training; unused operations are neither computed nor updated."""

from dataclasses import fields
from typing import Any

from jaxtyping import Array, Float

from cells.darts.forward import CellRules, run
from cells.rules import TrainingRules, Weights
from ntkscore.grams import Images


class Training(TrainingRules, CellRules):
    """Rules for a genotype that is known, differentiable in weights and images."""


def logits(
    rules: CellRules, params: Weights, statistics: Weights, images: Images, train: bool
) -> tuple[Float[Array, "m o"], Weights]:
    """Logits of a batch of images, and the running statistics after it.

    Args:
        rules: of a genotype as arrays of numpy.
        params, statistics: as in the network's variables.
        images: pixels in [0, 1].
        train: normalise by the batch's own statistics, and move the running ones towards them; else
            normalise by the running ones, and leave them.
    """
    given: dict[str, Any] = {field.name: getattr(rules, field.name) for field in fields(rules)}
    y, _, new = run(Training(**{**given, "measure": train}), params, statistics, images)
    return y, new
