"""Whether regression with a joint kernel, tested at attacked images, orders networks.

It is the one score that uses labels, β and ρ as the paper's theory does: a network's NTK is trained
on clean and attacked images with weight β, and tested at an attacked image that it has not seen.

The protocol was committed before anything of it was computed.

1. Cells are 200 of the table, drawn among all functions that it has. Networks have C = 8 and one
   cell a stage, and are not trained; one seed. Images are 1,000 of CIFAR-10, the same for all.
2. The kernel is that of one logit, the first; no label is in it. Attacks are FGSM 8/255 on the
   untrained network. Targets are one-hot classes less .1.
3. Trained with K_all at β ∈ {0, ½, 1}, tested without a point at that image, clean or attacked, by
   the closed form. The ridge α is 1e-4, 1e-2 and 1 of the mean of the diagonal of K_all; 1e-2 is
   the one that claims are about.
4. A score is the mean squared error, less is better; the part of images whose class is right stands
   beside it.
5. It is worth its partial Spearman coefficient with accuracy given eight counts, and their squares;
   beside that with nothing given. Accuracies are those of networks trained adversarially, under PGD
   8/255, and of networks trained without attacks, under PGD 1/255, all on CIFAR-10.
6. Intervals are of 95 %, by bootstrap over the cells; differences are paired, and worth a note from
   .02 on.
7. Does the robust risk (β = ½, tested at attacked images) know anything given counts? More than
   the clean risk (β = 0, tested at clean images)? More than β = 0 tested at attacked images? More
   than λ_min/trace of the clean kernel (three seeds of 16 images, five cells a stage)? With nothing
   given, does it order better than the parameter count? Each on both tables.
"""

from collections.abc import Callable, Iterator
from functools import cache
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from attacks import fgsm
from cells.nasbench201.canonical import representatives
from cells.nasbench201.space import NASBench201
from experiments.data import BENCHMARK, DATASET, METRIC, OLDER, RECORDED, Data
from experiments.frame import Claim, Interval, Stronger, Study
from experiments.paper.contrasts import NOTABLE, interval, intervals, partials
from experiments.paper.measures import HELD_EQUAL, RECORDINGS, measured
from experiments.plotting import panels
from ntkscore.data.images import draw_images
from ntkscore.kernels.gram import evaluate
from ntkscore.kernels.joint import block, mix
from ntkscore.kernels.stack import loss_gradient
from ntkscore.regression import KernelRegression
from ntkscore.run import devices

RISKS = "regression-risks"
"""The study whose table this one reads."""
ROBUST, CLEAN, UNTRAINED = "risk, β = ½, attacked", "risk, β = 0, clean", "risk, β = 0, attacked"
LAMBDA = "clean.lambda_min_normalized"
CHOSEN = {ROBUST: (0.5, "attacked"), CLEAN: (0.0, "clean"), UNTRAINED: (0.0, "attacked")}
"""Weight β and images of the three risks that claims are about."""
OTHERS = {
    "risk, β = 1, attacked": (1.0, "attacked"),
    "risk, β = ½, clean": (0.5, "clean"),
}
KNOWN = {LAMBDA: "λ_min/trace", "params": "parameters", "robust.frobenius": "NTK-score"}
TRAININGS = {"adversarial, PGD 8/255": METRIC, "standard, PGD 1/255": "val_pgd_1_acc"}
PAIRS = {
    "more than the clean risk": (ROBUST, CLEAN),
    "more than β = 0 at attacked images": (ROBUST, UNTRAINED),
    "more than λ_min/trace": (ROBUST, LAMBDA),
}


def cells_of(data: Data, count: int, seed: int) -> list[int]:
    """Some cells of the table, each of another function."""
    known = sorted({representatives()[int(str(cell))] for cell in data.table.own})
    return [int(cell) for cell in np.random.default_rng(seed).permutation(known)[:count]]


def risks(
    gram: np.ndarray, labels: np.ndarray, betas: tuple[float, ...], ridges: tuple[float, ...]
) -> Iterator[dict[str, Any]]:
    """Errors without a point, at clean and attacked images.

    Args:
        gram: (2N, 2N), of the images and these attacked.
        labels: (N,).
        betas: weights of the attacked images.
        ridges: α, relative to the mean of the kernel's diagonal.
    """
    n, targets = len(labels), (labels[:, None] == np.arange(labels.max() + 1)) - 0.1
    clean, cross, robust = (block(gram, name, n) for name in ("clean", "cross", "robust"))
    for beta, ridge in product(betas, ridges):
        kernel = mix(clean, cross, robust, beta)
        fitted = KernelRegression(ridge * np.trace(kernel) / n).fit(kernel, targets)
        tests = {
            "clean": (1 - beta) * clean + beta * cross,
            "attacked": (1 - beta) * cross.T + beta * robust,
        }
        for images, test in tests.items():
            errors = fitted.leave_one_out(test)
            right = np.argmax(targets - errors, 1) == labels
            row = {"beta": beta, "ridge": ridge, "images": images}
            yield row | {"risk": float(np.mean(errors**2)), "accuracy": float(right.mean())}


@cache
def program(space: NASBench201, rho: float) -> Callable[..., jax.Array]:
    """The kernel of images and these attacked, compiled for every cell."""

    @jax.jit
    def kernel(variables: Any, code: Any, images: jax.Array, labels: jax.Array) -> jax.Array:
        model = space.model((), variables, code, images)
        attacked = fgsm(rho)(loss_gradient(model, labels), images)
        points = jnp.concatenate([images, attacked])
        first = jnp.zeros(len(points), jnp.int32)
        return evaluate(model, points, first, "label").gram[0]

    return kernel


def measure_risks(at: Any) -> Iterator[dict[str, Any]]:
    """Risks of one cell."""
    devices.keep_compiled()
    data = at.data.images()
    images, labels = draw_images(data, at.samples, at.seed, balanced=True)
    space = NASBench201(channels=at.channels, cells_per_stage=at.cells_per_stage).on(data.task)
    cell = cells_of(at.data, at.cells, at.seed)[at.place]
    variables, code = space.draw((), at.seed, jnp.float32), space.encode(space.parse(cell))
    gram = program(space, at.rho)(variables, code, images, labels)
    for row in risks(np.asarray(gram, np.float64), labels, at.betas, at.ridges):
        yield {"cell": cell} | row


RISKS_STUDY = Study(
    "Regression with the joint kernel, without a point: its risks",
    measure_risks,
    cases={"place": tuple(range(200))},
    fixed={
        "cells": 200,
        "samples": 1000,
        "channels": 8,
        "cells_per_stage": 1,
        "rho": 8 / 255,
        "betas": (0.0, 0.5, 1.0),
        "ridges": (1e-4, 1e-2, 1.0),
        "seed": 0,
    },
    table=lambda frame: (
        frame[frame["ridge"] == 0.01]
        .groupby(["beta", "images"])[["risk", "accuracy"]]
        .mean()
        .reset_index()
    ),
    note="Means over 200 cells; the risk of the mean target is .090. The study after this one says "
    "what the risks order.",
    needs=(BENCHMARK, DATASET),
)


def measure(at: Any) -> Iterator[dict[str, Any]]:
    """A row for each training, ridge, what is given, and risk, measure or difference."""
    frame = pd.read_csv(RECORDED.parent / "tables" / f"{RISKS}.csv")
    known = measured(at.data)[[*dict.fromkeys([*KNOWN, *HELD_EQUAL])]].dropna()
    tables = dict(zip(TRAININGS, (at.data.table, at.data.older), strict=True))
    for ridge, part in frame.groupby("ridge"):
        wide = part.pivot(index="cell", columns=["beta", "images"], values=["risk", "accuracy"])
        wide = wide[wide.index.isin(known.index)]
        cells, scores = [int(cell) for cell in wide.index], known.loc[wide.index]
        values = {name: -wide["risk", *key] for name, key in (CHOSEN | OTHERS).items()}
        values |= {f"accuracy of {ROBUST}": wide["accuracy", *CHOSEN[ROBUST]]}
        values |= {name: scores[name] for name in KNOWN}
        columns = np.column_stack([*values.values()])
        counts = scores[[*HELD_EQUAL]].to_numpy(float)
        for (training, metric), given in product(TRAININGS.items(), ("nothing", "eight counts")):
            accuracy = np.array(tables[training].accuracies(DATASET, metric, cells))
            columns_given = counts if given == "eight counts" else counts[:, :0]
            found = partials(columns, accuracy, columns_given, at.resamples, at.seed)
            of = dict(zip(values, found.T, strict=True))
            of |= {text: of[more] - of[less] for text, (more, less) in PAIRS.items()}
            of |= {"more than the parameter count": of[ROBUST] - of["params"]}
            for name, samples in of.items():
                row = {"training": training, "ridge": ridge, "given": given, "measure": name}
                yield row | {"cells": len(cells)} | interval(samples, at.resamples)._asdict()


def found_of(frame: pd.DataFrame, name: str, given: str = "eight counts") -> list[Interval]:
    """The intervals of a measure, or of a difference, on both tables, at the ridge of claims."""
    here = (frame["measure"] == name) & (frame["given"] == given) & (frame["ridge"] == 0.01)
    return intervals(frame[here])


def claims(frame: pd.DataFrame) -> Iterator[Claim]:
    """What the robust risk knows."""
    rule = Stronger(NOTABLE)
    text = "given eight counts: the robust risk knows something"
    yield Claim(text, "", found_of(frame, ROBUST), rule, True)
    for text in PAIRS:
        claim = f"given eight counts: the robust risk knows {text}"
        yield Claim(claim, "", found_of(frame, text), rule, True)
    text = "the robust risk orders better than the parameter count"
    found = found_of(frame, "more than the parameter count", "nothing")
    yield Claim(text, "", found, rule, True)


def figure(frame: pd.DataFrame) -> Figure:
    """Partial coefficients given eight counts, by ridge; a panel for each table."""
    drawn, axes = panels(2, 1.2, together=True)
    names = [*CHOSEN, *OTHERS, LAMBDA, "robust.frobenius"]  # parameters are given
    for axis, training in zip(axes, TRAININGS, strict=True):
        part = frame[(frame["training"] == training) & (frame["given"] == "eight counts")]
        for (ridge, of), shift in zip(part.groupby("ridge"), (-0.2, 0, 0.2), strict=True):
            rows = of.set_index("measure").loc[names]
            places = np.arange(len(rows)) + shift
            (line,) = axis.plot(rows["value"], places, "o", ms=3, label=f"ridge {ridge:g}")
            axis.hlines(places, rows["low"], rows["high"], color=line.get_color(), lw=1)
        axis.axvline(0, color="0.5", lw=0.6)
        axis.set(title=training, xlabel="partial Spearman, given eight counts")
        axis.grid(axis="y", linewidth=0.3)
    axes[0].set_yticks(range(len(names)), [KNOWN.get(name, name) for name in names], fontsize=7)
    axes[0].invert_yaxis()
    axes[1].legend(fontsize="x-small")
    return drawn


STUDY = Study(
    "Whether regression with the joint kernel, tested at attacked images, orders networks",
    measure,
    fixed={"resamples": 500, "seed": 0},
    claims=claims,
    figure=figure,
    note="200 cells, 1,000 images of CIFAR-10, one logit's kernel of networks with 8 channels and "
    "one cell a stage; partial Spearman coefficients given eight counts and their squares.",
    needs=(BENCHMARK, OLDER, *RECORDINGS),
)
