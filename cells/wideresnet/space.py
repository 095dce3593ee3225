"""Wide residual networks as a `Space`: arrays of each network have shapes of their own."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from numpy.typing import DTypeLike

from attacks.lazy import Array, jax
from cells.cell_space import (
    STATISTICS,
    Code,
    StagedSpace,
    Statistics,
    Variables,
    bn_option,
    init_option,
)
from cells.costs import IMAGE_CHANNELS, ConvGroup
from cells.wideresnet.stages import STAGES, Stages
from ntkscore.model import Passes
from ntkscore.options import option

if TYPE_CHECKING:
    from cells.rules import Rules

DEPTHS = (2, 3, 4, 5, 7, 9, 11)
WIDTHS = (4, 6, 8, 10, 12, 14, 16, 20)
"""Blocks and widening factors of a stage that Huang et al. (2023) vary."""


@dataclass(frozen=True, kw_only=True)
class WideResNet(StagedSpace):
    """Wide residual networks of three stages, each with a depth and a width of its own.

    Attributes:
        channels: C, of the stem; stage i has 2^(i−1) · C times its widening factor.
        init, bn: as of every `StagedSpace`.

    Source: Zagoruyko and Komodakis (2016), "Wide residual networks"; Huang et al. (2023),
    "Revisiting residual networks for adversarial robustness".

    Example:
        >>> space = WideResNet(channels=4)
        >>> space.trained().costs(space.parse("WRN-28-10"))
        {'params': 36479194, 'flops': 5243328768}
    """

    name: ClassVar[str] = "wideresnet"
    title: ClassVar[str] = "a wide residual network"
    piecewise: ClassVar[bool] = True
    weights_module: ClassVar[str] = "cells.wideresnet.network"
    passes_module: ClassVar[str] = weights_module

    channels: int = option(16, "Channels of the stem; the first stage has W times it.")
    init: str = init_option()
    bn: str = bn_option()

    def parse(self, text: object) -> Stages:
        """A network from depths and widths such as `4-4-4x10-10-10`, or from `WRN-28-10`."""
        return Stages.parse(text)

    def identity(self, architecture: Stages) -> dict[str, str | int]:
        """Depths and widths of the stages."""
        return {"stages": str(architecture)}

    def convolutions(self, architecture: Stages) -> Iterator[ConvGroup]:
        """All convolutions, and at last the linear layer."""
        yield ConvGroup(0, 9 * IMAGE_CHANNELS * self.channels)
        stages = architecture.blocks(self.channels)
        for stage, blocks in enumerate(stages):
            for block in blocks:
                seeing = (9 + block.projects) * block.before + 9 * block.after
                normalised, layers = block.before + block.after, 2 + block.projects
                yield ConvGroup(stage, seeing * block.after, normalised, layers)
        width = stages[-1][-1].after
        yield ConvGroup(3, width, width)

    def structure(self, architecture: Stages) -> dict[str, float]:
        """Layers, depth, receptive field, and the sum of the widening factors."""
        return super().structure(architecture) | architecture.structure()

    def architectures(self, which: str) -> Sequence[Stages]:
        """All networks of the depths and widths that Huang et al. vary, for `all` and `distinct`.

        Any other numbers may be named.
        """
        if which not in self.sets:
            return super().architectures(which)
        depths, widths = (itertools.product(of, repeat=STAGES) for of in (DEPTHS, WIDTHS))
        return [Stages(*both) for both in itertools.product(depths, widths)]

    def shape(self, architecture: Stages) -> Stages:
        """The network: arrays of two have different shapes."""
        return architecture

    def draw(self, shape: Stages, seed: int, dtype: DTypeLike) -> Variables:
        """Weights, and statistics of mean 0 and variance 1; drawn in float32 whatever the dtype."""
        drawn = import_module(self.weights_module).draw(self, shape, jax.random.key(seed))
        return jax.tree.map(lambda leaf: leaf.astype(dtype), drawn)

    def rules(self, code: Code) -> "Rules":
        """Computations of the layers, whatever the code: the network's arrays say what it is."""
        return super().rules(None)

    def passes(
        self, code: Code, variables: Variables, images: Array | None = None
    ) -> tuple[Passes | None, Statistics]:
        """The passes, to be derived where the network is one program; and the statistics."""
        network, rules = import_module(self.passes_module), self.rules(code)
        params, statistics = variables["params"], variables[STATISTICS]
        if images is not None:
            _, statistics = network.run(replace(rules, measure=True), params, statistics, images)
        return network.passes(rules, params, statistics), statistics
