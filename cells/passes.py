"""Forward and backward passes that share residuals, for the network of any space of cells."""

import itertools
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar, Generic, TypeVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cells import layers
from cells.backward import Backward, grams_like
from cells.rules import Outputs, Rules, Weights
from ntkscore.grams import GramByKind, Images
from ntkscore.model import Activations, Logits, Passes, Visit, have_values

Residuals = TypeVar("Residuals")
Pairs = list[tuple[Float[Array, "_ _ _ _ _"], Float[Array, "_ _ _ _ _"]]]
"""Gradients at blocks' inputs, and signs at their outputs, blocks of a shape together."""


class CellPasses(Passes, Generic[Residuals]):
    """The passes of one architecture's network.

    Args:
        rules: of its layers.
        statistics: stored statistics of its normalisations.
        params, images: if given, the statistics are measured instead, layer by layer, on images at
            these parameters. Inside of a program, a later forward pass over both reuses that one.

    They are a tree of the rules and the statistics, so that the networks of a space share programs;
    a subclass has no attributes of its own.
    """

    run: ClassVar[Callable[..., tuple[Array, PyTree, Weights]]]
    """Logits, residuals and statistics to store, of (rules, params, statistics, images)."""

    def __init__(
        self,
        rules: Rules,
        statistics: Weights,
        params: Weights | None = None,
        images: Images | None = None,
    ) -> None:
        self.rules, self.statistics = rules, statistics
        self._first: tuple[Weights, Images, Logits, Residuals] | None = None
        if params is None or images is None:
            return
        if have_values(rules.code, params, statistics, images):
            self.statistics = measured(self.run, rules, params, statistics, images)
            return
        measuring = replace(rules, measure=True)
        logits, residuals, self.statistics = self.run(measuring, params, statistics, images)
        self._first = params, images, logits, residuals

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        jax.tree_util.register_dataclass(cls, ["rules", "statistics"], [])

    def forward(self, params: Weights, images: Images) -> tuple[Logits, Residuals]:
        if self._first is not None and self._first[0] is params and self._first[1] is images:
            return self._first[2:]
        logits, residuals, _ = self.run(self.rules, params, self.statistics, images)
        return logits, residuals

    def gram_by_kind(
        self, params: Weights, residuals: Sequence[Residuals], cotangent: Logits, start: GramByKind
    ) -> tuple[Images, GramByKind]:
        visit = grams_like(start) if start else None
        back = Backward(self.rules, params, self.statistics, visit, start)
        g = self.back(back, residuals, cotangent)
        return g / jnp.asarray(self.rules.std, g.dtype), back.total

    def layers(
        self, params: Weights, residuals: Residuals, cotangent: Logits, visit: Visit
    ) -> PyTree:
        of_weights = lambda layer: [visit(layer)] if layer.kernel.ndim > 1 else []  # noqa: E731
        back = Backward(self.rules, params, self.statistics, of_weights)
        self.back(back, [residuals], cotangent)
        return jax.tree.map(lambda *parts: jnp.concatenate(parts), *back.outputs)

    def rectifier_values(
        self, params: Weights, residuals: Residuals
    ) -> list[tuple[Array, Array, Array]]:
        """The inputs and outputs of all ReLUs, and how many read each input."""
        rectified = self.activations(params, residuals).rectified
        return [(count, x, jax.nn.relu(x)) for count, x in rectified]

    def pullbacks(self, params: Weights, residuals: Residuals, key: PRNGKeyArray) -> Pairs:
        keys = map(partial(jax.random.fold_in, key), itertools.count())
        signs = lambda a: jax.random.rademacher(next(keys), a.shape, a.dtype)  # noqa: E731
        return self.pull_blocks(Backward(self.rules, params, self.statistics), residuals, signs)

    def unnormalized(self, params: Weights, points: Images) -> Logits:
        colours = len(self.rules.mean)
        rules = replace(self.rules, mean=(0.0,) * colours, std=(1.0,) * colours, bn="init")
        return self.run(rules, params, layers.neutral(self.statistics), points)[0]

    def standardized(
        self, params: Weights, points: Images, others: Images
    ) -> tuple[Outputs, Outputs, Float[Array, ""]]:
        """Features before the mean over the pixels at two batches, standardised by the first.

        The batches are images after the normaliser. The third output is Σ ln σ, where σ² is the
        mean over the channels of a normalisation's variance.
        """
        rules = replace(self.rules, bn="calibrated", init_name="torch")
        mean, std = (jnp.asarray(each, points.dtype) for each in (rules.mean, rules.std))
        unused = jax.tree.map(jnp.ones_like, self.statistics)
        measuring = replace(rules, measure=True)
        _, first, measured = self.run(measuring, params, unused, points * std + mean)
        _, second, _ = self.run(rules, params, measured, others * std + mean)
        here, there = (self.pooled(rules, params, measured, each) for each in (first, second))
        return here, there, layers.log_deviations(measured)

    @abstractmethod
    def back(self, back: Backward, residuals: Sequence[Residuals], cotangent: Logits) -> Images:
        """The gradient in the normalised images; every layer is visited.

        What is made of a layer is zeros at edges whose operation has fewer layers than another.

        Args:
            back: the backward pass.
            residuals: of forward passes over sets of images.
            cotangent: of the logits of all of them, set after set.
        """

    @abstractmethod
    def pull_blocks(
        self, back: Backward, residuals: Residuals, signs: Callable[[Array], Array]
    ) -> Pairs:
        """Gradients at the blocks' inputs, and signs at their outputs, blocks of a shape together.

        Args:
            back: which visits no layer.
            residuals: of a forward pass.
            signs: random ones, of an array's shape.
        """

    @abstractmethod
    def pooled(
        self, rules: Rules, params: Weights, statistics: Weights, residuals: Residuals
    ) -> Outputs:
        """The features before the mean over the pixels."""

    @abstractmethod
    def activations(self, params: Weights, residuals: Residuals) -> Activations:
        """Inputs of all ReLUs, and outputs of the blocks."""


@partial(jax.jit, static_argnums=0)
def measured(
    run: Callable[..., tuple[Array, PyTree, Weights]],
    rules: Rules,
    params: Weights,
    statistics: Weights,
    images: Images,
) -> Weights:
    """Statistics of the images, by a program that all architectures of a size share.

    Args:
        run: of a class of passes.
        rules, params, statistics, images: as for `CellPasses`.
    """
    return run(replace(rules, measure=True), params, statistics, images)[-1]
