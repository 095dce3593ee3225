"""Signs that gradients are not masked, image by image (the paper's Table 4)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from experiments.study import Finding, interval, verdict
from experiments.theory.seeds import Interval, over_seeds
from experiments.theory.studies.statistics import within
from ntkscore.training.evaluation import CHECKS, RADII

Rights = Mapping[tuple[str, int], np.ndarray]
"""Masks of the images that a network classifies correctly, by attack and radius, as `rights`."""

OPPOSITE = "as printed, the opposite (Table 4 {}); its data, this (Table 5)"
PAPER = {
    "fgsm_not_below_pgd": "holds (Table 4 a)",
    "square_not_below_pgd": "holds (Table 4 b), but with 4 empty edges",
    "pgd_255_is_zero": OPPOSITE.format("c"),
    "pgd_falls": OPPOSITE.format("d"),
    "draws_not_below_pgd": "holds (Table 4 e)",
}
"""The paper's words on each of `CHECKS`."""


def pairs(name: str, networks: Sequence[Rights]) -> Iterator[tuple[str, np.ndarray]]:
    """What one of `CHECKS` compares, and the differences that it says are not negative.

    Args:
        name: of `CHECKS`.
        networks: the masks of each; all have the same attacks and images.

    Returns:
        Pairs of a name and of differences between two masks, -1, 0 or 1, (networks, images).
    """

    def difference(first: tuple[str, int], second: tuple[str, int]) -> np.ndarray:
        return np.stack([np.int8(one[first]) - np.int8(one[second]) for one in networks])

    keys = list(networks[0])
    if name == "pgd_falls":
        radii = sorted(radius for metric, radius in keys if metric == "pgd")
        for low, high in itertools.pairwise(radii):
            yield f"PGD {low} − {high}", difference(("pgd", low), ("pgd", high))
    elif name == "pgd_255_is_zero":
        if ("pgd", RADII[-1]) in keys:
            yield "−PGD 255", np.stack([-np.int8(one["pgd", RADII[-1]]) for one in networks])
    else:
        metric = name.removesuffix("_not_below_pgd")
        for key in keys:
            if key[0] == metric and ("pgd", key[1]) in keys:
                yield f"{metric} − PGD, {key[1]}/255", difference(key, ("pgd", key[1]))


def mean_interval(differences: np.ndarray) -> Interval:
    """Mean of paired differences, and its 95 % interval (bootstrap over images).

    Args:
        differences: (networks, images); the networks share their images, so that an image's mean
            over networks is one draw.
    """
    return over_seeds(differences.mean(0), np.mean)


def sign_findings(networks: Sequence[Rights], of: str = "") -> Iterator[Finding]:
    """A finding for each of `CHECKS`, over all networks.

    Args:
        networks: the masks of each.
        of: as for a `Finding`.
    """
    for name, text in CHECKS.items():
        compared = list(pairs(name, networks))
        if not compared:
            continue
        intervals = {what: mean_interval(differences) for what, differences in compared}
        below = np.any([differences.mean(1) < 0 for _, differences in compared], axis=0)
        exact = name == "pgd_255_is_zero"
        yield Finding(
            text,
            PAPER[name],
            "; ".join(f"{what} {interval(*one, '+.4f')}" for what, one in intervals.items()),
            verdict(not below.any()) if exact else within([*intervals.values()], 0, np.inf),
            f"accuracies in that order in {int((~below).sum())} of {len(networks)} networks; "
            f"paired over {compared[0][1].shape[1]} test images",
            of,
        )
