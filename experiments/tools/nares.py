"""Predictions for 500 networks of NARes, whose accuracies we have not seen.

NARes has 15,625 wide residual networks, each trained once on CIFAR-10, adversarially. Its file was
not at hand when this was written, nor any number of it but the best accuracies, and the mean ones
of searches, that its page prints. The protocol, written before anything was computed:

- Networks: 500 of the 15,625, the first of a permutation by `numpy.random.default_rng(57)`.
- Scores: at 16 images of CIFAR-10, a stem of 2 channels, PyTorch's initialisation, calibrated
  normalisation, FGSM at 8/255; three seeds of images and weights, averaged. Seeds are computed one
  after the other; where time ends before the third, the whole seeds that there are count.
- Predictions, all claiming that more is better: `params`, which is the trivial baseline; the counts
  `flops`, `layers`, `depth`, `field` and `width`; the default order of the space,
  `params+clean.naswot`; `clean.naswot`; `clean.lambda_min_normalized` (λ_min/trace) and that of the
  robust kernel; the paper's NTK-score, `robust.frobenius`. Other rows of the recording are for
  looking at.
- Accuracies: clean, under PGD-20 at 8/255 (`pgd8`) and under AutoAttack, on CIFAR-10's test images.
- Statistic: Spearman's coefficient over the 500 networks, with the 95 % interval of
  `ntkscore correlate` (bootstrap over networks, 1,000 resamples).
- Success: a prediction holds for an accuracy if its whole interval is above 0, and says more than
  size if its whole interval is above that of `params`. The kernel is of use here if λ_min/trace, of
  the clean or of the robust kernel, says more than size under AutoAttack and under PGD-20; the
  default order is if it does. Where no interval is above that of `params`, the answer is to count
  parameters. What has the opposite sign with its whole interval is wrong.

With the file, one command prints all of it for an accuracy:

    ntkscore correlate experiments/results/nares --table nares.txz --metric autoattack

`ntkscore score` compiles the passes of each network anew, which takes most of its time for networks
of forty layers and few channels. Here the passes of a block are compiled once for its sizes, and
those of a network are a chain of them.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import typer
from jaxtyping import Array

from cells.cell_space import STATISTICS
from cells.rules import NetworkRules, Weights
from cells.wideresnet import Stages, WideResNet, network
from experiments.data import DATASET, RECORDED
from ntkscore.config import Config
from ntkscore.data.images import load_images
from ntkscore.data.nares import DEPTHS, WIDTHS
from ntkscore.grams import GramByKind, in_full_precision, zero_grams
from ntkscore.kernels.readouts import READOUTS
from ntkscore.kernels.stack import RaisedLoss
from ntkscore.measures.activations import FEATURES, STATES
from ntkscore.measures.forward_pass import Pass
from ntkscore.measures.kernel import measure
from ntkscore.measures.registry import Measurement
from ntkscore.measures.report import measurements_of
from ntkscore.model import Activations, Logits, Model, Passes, Points
from ntkscore.paths import data_home
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run import devices
from ntkscore.run.scorer import Batch, Scorer
from ntkscore.run.scoring import Scoring
from ntkscore.space import Space
from ntkscore.trace.parameters import PARAMETER_SETS
from ntkscore.trace.passes import passes_of

NARES = "nares"
"""The recording's name."""
KEPT = ("lambda_min_normalized", "frobenius", "trace", "naswot", "expressivity")
"""Scores of the clean and of the robust kernel, or at these images, that are recorded."""
AT_ONCE = 25
"""Networks whose rows are written together."""


def networks_of_nares() -> list[Stages]:
    """All networks of the table, depths before widths, the last number fastest."""
    sets = (itertools.product(of, repeat=3) for of in (DEPTHS, WIDTHS))
    return [Stages(*both) for both in itertools.product(*sets)]


def drawn(count: int = 500, seed: int = 57) -> list[Stages]:
    """The networks that are predicted."""
    every = networks_of_nares()
    places = np.random.default_rng(seed).permutation(len(every))[:count]
    return [every[place] for place in places]


class Piece(NamedTuple):
    """The stem, a block or the head.

    Attributes:
        part: which of them, a name in `PARTS`.
        stride: of a block, in pixels.
    """

    part: str
    stride: int = 1


class Given(NamedTuple):
    """A piece of a network, its weights and its normalisations' statistics."""

    piece: Piece
    weights: Weights
    stored: Weights


def _stem(
    rules: NetworkRules, x: Points, weights: Weights, stored: Weights, stride: int
) -> tuple[Array, Weights]:
    return network.stem(rules, x, weights), stored


def _head(
    rules: NetworkRules, x: Points, weights: Weights, stored: Weights, stride: int
) -> tuple[Array, Weights]:
    return network.head(rules, x, weights, stored)


STEM, BLOCK, HEAD = "stem", "block", "head"
PARTS = {STEM: _stem, BLOCK: network.block, HEAD: _head}
"""What computes a piece's output and its statistics."""


@partial(jax.jit, static_argnums=(0, 1))
def measured(
    rules: NetworkRules, piece: Piece, weights: Weights, stored: Weights, x: Points
) -> tuple[Array, Weights]:
    """A piece's output, and its statistics where the rules measure them."""
    return PARTS[piece.part](rules, x, weights, stored, piece.stride)


def _passes(
    rules: NetworkRules, piece: Piece, weights: Weights, stored: Weights, x: Points
) -> tuple[Model, Passes]:
    """A piece as a network of its own, whose logits are all numbers of its output."""

    def apply(weights: Weights, x: Points) -> Logits:
        return measured(rules, piece, weights, stored, x)[0].reshape(len(x), -1)

    model = Model(apply, weights)
    return model, passes_of(model, x)


@partial(jax.jit, static_argnums=(0, 1))
def pulled(
    rules: NetworkRules, piece: Piece, weights: Weights, stored: Weights, x: Points, g: Array
) -> Points:
    """The cotangent of a piece's input from that of its output."""
    return jax.vjp(lambda x: measured(rules, piece, weights, stored, x)[0], x)[1](g)[0]


@partial(jax.jit, static_argnums=(0, 1))
def contracted(
    rules: NetworkRules,
    piece: Piece,
    weights: Weights,
    stored: Weights,
    x: Points,
    g: Array,
    start: GramByKind,
) -> tuple[Points, GramByKind]:
    """The same, and the Gram matrices with those of the piece's weights added."""
    model, passes = _passes(rules, piece, weights, stored, x)
    _, residuals = passes.forward(model.params, x)
    gradient, grams = passes.gram_by_kind(model.params, [residuals], g.reshape(len(x), -1), start)
    return gradient, jax.tree.map(jnp.add, start, grams)


@partial(jax.jit, static_argnums=(0, 1))
def rectified(
    rules: NetworkRules, piece: Piece, weights: Weights, stored: Weights, x: Points
) -> Any:
    """The inputs of a piece's rectifiers."""
    model, passes = _passes(rules, piece, weights, stored, x)
    found = passes.activations(model.params, passes.forward(model.params, x)[1])
    return [] if found is None else list(found.rectified)


class Chain(Passes):
    """The passes of a wide residual network, piece after piece; its residuals are their inputs.

    Args:
        rules: computations of the layers.
        pieces: from the stem to the head.
    """

    def __init__(self, rules: NetworkRules, pieces: Sequence[Given]) -> None:
        self.rules, self.pieces = rules, pieces

    def forward(self, params: Any, points: Points, /) -> tuple[Logits, list[Points]]:
        """Logits of points, and the input of each piece."""
        x, inputs = points, []
        for piece in self.pieces:
            inputs.append(x)
            x, _ = measured(self.rules, *piece, x)
        return x, inputs

    def gradient(self, params: Any, residuals: list[Points], cotangent: Logits) -> Points:
        """The gradient in the points, from the cotangent of their logits."""
        for piece, x in zip(reversed(self.pieces), reversed(residuals), strict=True):
            cotangent = pulled(self.rules, *piece, x, cotangent)
        return cotangent

    def gram_by_kind(
        self, params: Any, residuals: Sequence[list[Points]], cotangent: Logits, start: GramByKind
    ) -> tuple[Points, GramByKind]:
        """The gradient in the points, and the Gram matrices by kind of parameter."""
        together = [jnp.concatenate(x) for x in zip(*residuals, strict=True)]
        grams = start
        for piece, x in zip(reversed(self.pieces), reversed(together), strict=True):
            cotangent, grams = contracted(self.rules, *piece, x, cotangent, grams)
        return cotangent, grams

    def layers(self, *_: Any) -> Any:
        """Refuse: no measure of the protocol reads single layers."""
        raise NotImplementedError("no layers of a chain")

    def activations(self, params: Any, residuals: list[Points]) -> Activations:
        """Inputs of the rectifiers, and outputs of the blocks, which are the next one's inputs."""
        found: list[Any] = []
        for piece, x in zip(self.pieces, residuals, strict=True):
            found += rectified(self.rules, *piece, x)
        return Activations(found, [x[None] for x in residuals[2:]])


def chain_of(space: WideResNet, variables: Mapping[str, Any], images: Points) -> Chain:
    """The passes of a network at its weights, with statistics of the images."""
    params, stored = variables["params"], variables[STATISTICS]
    pieces = [Given(Piece(STEM), params["stem"], {})]
    for stage, both in enumerate(zip(params["stages"], stored["stages"], strict=True)):
        for place, each in enumerate(zip(*both, strict=True)):
            pieces.append(Given(Piece(BLOCK, 2 if stage and not place else 1), *each))
    pieces.append(Given(Piece(HEAD), params["head"], stored["head"]))
    x, found, measuring = images, [], replace(space.rules, measure=True)
    for piece in pieces:
        x, new = measured(measuring, *piece, x)
        found.append(piece._replace(stored=new))
    return Chain(space.rules, found)


@in_full_precision
def scores(space: Space, config: Config, batch: Batch) -> dict[tuple[str, str], Measurement]:
    """Scores of a network by kernel and name, as `ntkscore.score` has them."""
    images, labels = batch.images, batch.labels
    assert isinstance(space, WideResNet)
    chain = chain_of(space, batch.variables, images)
    params, run = batch.variables["params"], lambda params, x: chain.forward(params, x)[0]
    model = Model(run, params, passes=chain)
    at = partial(Pass, model, chain, labels=labels)
    clean = at(images)
    keys = jax.random.split(batch.key, 2)
    (rho,) = config.rhos
    attacked = at(config.attack_at(rho)(RaisedLoss(at, clean), images, keys[0]))
    found: dict[tuple[str, str], Measurement] = {}
    for kernel, each in (("clean", clean), ("robust", attacked)):
        start = zero_grams(PARAMETER_SETS["all"], images, 1)
        (cotangent,) = READOUTS[config.output](each.logits, labels)
        _, by_kind = chain.gram_by_kind(None, [each.residuals], cotangent, start)
        matrix = np.asarray(sum(by_kind.values()))[0]
        of = measure(matrix, np.asarray(labels))
        for quantity in (STATES, FEATURES):
            assert quantity.compute is not None
            arrays = jax.tree.map(np.asarray, quantity.compute(each))
            of |= measurements_of(quantity, arrays, np.asarray(labels))
        found |= {(kernel, name): value for name, value in of.items()}
    return found


def score_nares(
    data_dir: Annotated[Path | None, typer.Option(help="Folder with the images.")] = None,
    seconds: Annotated[float, typer.Option(help="After so many, stop; go on later.")] = 1e9,
    out: Annotated[Path, typer.Option(help="Folder of the recording.")] = RECORDED / NARES,
    samples: Annotated[int, typer.Option(help="Images.")] = 16,
    seeds: Annotated[int, typer.Option(help="Of images and weights.")] = 3,
    most: Annotated[int, typer.Option(help="So many of the networks, for a test.")] = 500,
) -> None:
    """Score the 500 networks of NARes that are predicted, or the rest of them."""
    devices.prepare()
    start, images = time.monotonic(), load_images(DATASET, data_home(data_dir))
    config, space = Config(samples=samples), WideResNet(channels=2)
    job = Scoring.of(images, config, space=space, seeds=seeds)
    scorer, (rho,) = Scorer(job.space, job.config), job.config.rhos
    chosen, attack = drawn()[:most], job.config.attack_at(rho)
    kept = ResultSet.create_or_resume(out, job.configuration, [*job.space.identity(chosen[0])])
    finished = kept.finished()
    todo = [
        (seed, stages)
        for seed in job.seeds
        for stages in chosen
        if (job.space.key(stages), seed) not in finished
    ]
    if not todo:
        return
    session = provenance({"command": "python -m experiments.tools score-nares"})
    writer = kept.record({name: of for name, of in session.items() if name != "platform"})
    for place in range(0, len(todo), AT_ONCE):
        rows: list[dict[str, Any]] = []
        for seed, stages in todo[place : place + AT_ONCE]:
            batch = scorer.batch(*job.draws[seed], seed, job.space.shape(stages))
            columns = job.space.identity(stages) | {"seed": seed, "rho": rho}
            columns |= {"steps": attack.steps, "step_size": attack.step_size}
            for (kernel, name), found in scores(job.space, job.config, batch).items():
                if name in KEPT:
                    of = {"beta": None, "kernel": kernel, "score": name}
                    rows.append(columns | of | found._asdict())
        writer.append(rows)
        if time.monotonic() - start > seconds:
            break
    kept.compact()
