"""What is scored: networks of a space, on images, with the seeds and choices that decide scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from typing import Any

import numpy as np

from ntkscore.candidates import on_images
from ntkscore.config import Config
from ntkscore.data.images import ImageSet, load_images
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.kernels.checks import check_pixels
from ntkscore.results.rows import FUNCTIONS
from ntkscore.run.fingerprints import functions_of
from ntkscore.run.selection import select
from ntkscore.space import Architecture, Space
from ntkscore.spaces import default_space


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring:
    """Networks of a space to be scored on images.

    Attributes:
        data: the images to draw from.
        space: where networks come from, on the data's images and classes.
        seeds: each draws its own images and weights.
    """

    data: ImageSet
    config: Config = field(default_factory=Config)
    space: Space = field(default_factory=default_space)
    seeds: Sequence[int] = (0,)

    @classmethod
    def of(
        cls,
        data: ImageSet | str | PathLike[str],
        config: Config | None = None,
        *,
        space: Space | None = None,
        seeds: int | Sequence[int] | None = None,
        first: int = 0,
    ) -> "Scoring":
        """Networks of a space on these images.

        Args:
            data: images to draw from, or their name or file; or a whole set (`ImageSet.of`).
            seeds: how many, or which; as many as the space's order needs if left out.
        """
        data = data if isinstance(data, ImageSet) else load_images(data)
        space = on_images(space or default_space(), data)
        seeds = space.seeds if seeds is None else seeds
        if isinstance(seeds, int):
            seeds = range(first, first + seeds)
        chosen = tuple(dict.fromkeys(seeds))
        if not chosen:
            raise InputError("at least one seed", "none", "give one")
        if (samples := data.drawn["samples"]) < 2:
            raise InputError(
                "at least 2 samples, whose kernel can tell them apart", samples, "score on more"
            )
        return cls(data=data, config=config or Config(), space=space, seeds=chosen)

    def select(
        self,
        networks: str | Sequence[Architecture],
        table: Table | None = None,
        seed: int = 0,
    ) -> tuple[Architecture, ...]:
        """Networks of the space: a list, or a specification (`ntkscore.run.selection.select`)."""
        chosen = select(networks, self.space, table, seed)
        if not chosen:
            raise InputError("at least one network to score", "none", "name some")
        return chosen

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """The choices that must be equal for two runs to share a directory, as plain values."""
        head = {"dataset": self.data.name, "data_checksum": self.data.checksum}
        choices = choices_of({**self.space.columns, **self.data.drawn}, self.config)
        return {**head, **choices, FUNCTIONS: functions_of(self.space, self.config)}

    @cached_property
    def draws(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Pixels (N, H, W, C) in [0, 1] and labels (N,) of each seed."""
        if self.data.samples is None:
            draws = dict.fromkeys(self.seeds, self.data.draw(self.seeds[0]))
        else:
            draws = {seed: self.data.draw(seed) for seed in self.seeds}
        for pixels, _ in draws.values():
            check_pixels(pixels)
        return draws


def choices_of(others: Mapping[str, object], config: Config) -> dict[str, object]:
    """The choices of space, draw and config that decide a score, as plain values."""
    choices = config.to_dict()
    del choices["implementation"]  # The implementations agree; which one ran is provenance.
    if not config.proxies:
        del choices["proxies"]  # Runs from before there was the choice go on.
    return {**others, **choices}
