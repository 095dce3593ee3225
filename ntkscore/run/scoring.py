"""What is scored: networks of a space, on images, with the seeds and choices that decide scores."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ntkscore.config import Config
from ntkscore.data.images import ImageSet, draw_images
from ntkscore.results.rows import FUNCTIONS
from ntkscore.run.fingerprints import functions_of
from ntkscore.space import Space
from ntkscore.spaces import default_space


@dataclass(frozen=True, eq=False, kw_only=True)
class Scoring:
    """Networks of a space to be scored on images.

    Attributes:
        data: the images to draw from.
        config: how networks are scored.
        space: where networks come from, on the data's images and classes.
        seeds: each draws its own images and weights.
    """

    data: ImageSet
    config: Config = field(default_factory=Config)
    space: Space = field(default_factory=default_space)
    seeds: Sequence[int] = (0,)

    @cached_property
    def configuration(self) -> dict[str, Any]:
        """The choices that must be equal for two runs to share a directory, as plain values."""
        head = {"dataset": self.data.name, "data_checksum": self.data.checksum}
        choices = choices_of(self.space.columns, self.config)
        return {**head, **choices, FUNCTIONS: functions_of(self.space, self.config)}

    @cached_property
    def draws(self) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """Pixels (N, H, W, C) in [0, 1] and labels (N,) of each seed.

        Raises:
            InputError: if there are not so many images.
        """
        config = self.config
        return {s: draw_images(self.data, config.samples, s, config.balanced) for s in self.seeds}


def choices_of(space: Mapping[str, object], config: Config) -> dict[str, object]:
    """The choices of space and config that decide a score, as plain values.

    Args:
        space: its name and options (`Space.columns`).
        config: how networks are scored.
    """
    choices = config.to_dict()
    del choices["implementation"]  # The implementations agree; which one ran is provenance.
    if not config.proxies:
        del choices["proxies"]  # Runs from before there was the choice go on.
    return {**space, **choices}
