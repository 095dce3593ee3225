"""From rank to proof: cells trained small, the best-scored one, a random one, the largest."""

from collections.abc import Iterator

import jax
import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from cells.nasbench201.cell import Cell
from experiments.ours.train_free_search import scores_of_distinct
from experiments.plotting import COLOURS, panels
from experiments.study import Finding, Outcome, Study, verdict
from experiments.theory.seeds import Interval
from experiments.training.setting import EPOCHS, SIZES, TEST, SmallTraining
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.api.scoring import score_network
from ntkscore.config import Config
from ntkscore.model import Model
from ntkscore.training.evaluation import evaluate
from ntkscore.training.steps import State

RANDOM, SEED, IMAGES = 2, 0, 32
"""Random cells, the seed of all, images of a kernel."""
WHEN = (0, 1, 3, 6, EPOCHS)
"""Epochs after which kernels are measured."""
KERNELS = ("clean", "robust")
SCORES = ("frobenius", "trace", "lambda_min")


def chosen(study: Study) -> dict[str, str]:
    """Digits of the cells: the best-scored, the largest, and random ones."""
    scores = DEFAULT.of(scores_of_distinct(study)).dropna()
    best = Cell(int(scores.idxmax())).digits
    rng = np.random.default_rng(study.seed)
    drawn = rng.choice(scores.index.to_numpy(), RANDOM, replace=False)
    others = {f"random {i + 1}": Cell(int(cell)).digits for i, cell in enumerate(drawn)}
    return {"best-scored": best, "largest": "333333", **others}


def kernels(
    model: Model, images: tuple[np.ndarray, np.ndarray], epoch: int
) -> Iterator[dict[str, object]]:
    """Scores of a network's kernels at its weights."""
    pixels = images[0].astype(np.float32) / 255
    frame = score_network(model, pixels, images[1], Config(samples=len(pixels)))
    for kernel in KERNELS:
        for score in SCORES:
            (value,) = frame.query("kernel == @kernel and score == @score")["value"]
            yield {"epoch": epoch, "measure": f"{kernel}.{score}", "value": float(value)}


def rows(study: Study) -> Iterator[dict[str, object]]:
    """Scores along training, and accuracies after it."""
    images = SmallTraining(study)
    few = images.train[0][:IMAGES], images.train[1][:IMAGES]

    def trained(cell: str, state: State) -> Model:
        params, statistics, _ = jax.tree.map(lambda leaf: leaf[0], state)
        return images.space.trained_model(cell, params, statistics)

    for what, cell in chosen(study).items():
        named: dict[str, object] = {"what": what, "cell": cell}
        start = images.space.trainable(cell, SEED)
        model = images.space.trained_model(cell, start.params, start.statistics)
        yield from (named | row for row in kernels(model, few, 0))
        scored: list[dict[str, object]] = []

        def score(epoch: int, state: State, cell: str = cell, scored: list = scored) -> None:
            if epoch in WHEN:
                scored.extend(kernels(trained(cell, state), few, epoch))

        fitted = images.fit(cell, 1.0, (SEED,), score)
        yield from (named | row for row in scored)
        accuracies = evaluate(trained(cell, fitted.state), *images.test, radii=(3, 8))
        for _, row in accuracies[accuracies["class"] == -1].iterrows():
            if row["metric"] in ("clean", "pgd"):
                name = f"{row['metric']} {round(row['rho'] * 255)}/255"
                yield named | {"epoch": EPOCHS, "measure": name, "value": row["value"]}


def lead(first: float, second: float) -> Interval:
    """The difference of two accuracies, and its interval from the number of test images."""
    error = 1.96 * ((first * (1 - first) + second * (1 - second)) / TEST) ** 0.5
    return Interval(first - second, first - second - error, first - second + error)


def run(study: Study) -> Outcome:
    """Accuracies of the cells, and changes of their kernels."""
    frame = pd.DataFrame(rows(study))
    last = frame[frame["epoch"] == EPOCHS].pivot(index="what", columns="measure", values="value")
    robust = last["pgd 8/255"].sort_values(ascending=False)
    best = robust["best-scored"]
    randoms = robust[[name for name in robust.index if name.startswith("random")]]
    findings = []
    for what, others in (("a random one", randoms), ("the largest", robust[["largest"]])):
        leads = [lead(best, value) for value in others]
        findings.append(
            Finding(
                f"the best-scored cell is more robust than {what}",
                "what the score is for",
                f"PGD 8/255 {best:.3f} against {', '.join(f'{v:.3f}' for v in others)}",
                verdict(
                    all(each.low > 0 for each in leads),
                    "not reproduced" if any(each.high < 0 for each in leads) else "not decidable",
                ),
                f"differences {', '.join(map(str, leads))} on {TEST} test images; one seed, "
                "trained small",
            )
        )
    names = [f"{kernel}.{score}" for kernel in KERNELS for score in SCORES]
    for name in names:
        table = frame[frame["measure"] == name].pivot(index="what", columns="epoch", values="value")
        both = table[[0, EPOCHS]].dropna()
        kept = spearmanr(both[0], both[EPOCHS])[0] if len(both) > 2 else np.nan
        findings.append(
            Finding(
                f"the order by {name} at initialisation survives training",
                "",
                f"Spearman {kept:.2f}",
                "not decidable",
                f"{len(both)} cells; median change of the score "
                f"{(both[EPOCHS] / both[0]).median():.2g}-fold",
            )
        )
    figure, axes = panels(len(SCORES), 0.8)
    for axis, score in zip(axes, SCORES, strict=True):
        part = frame[frame["measure"] == f"robust.{score}"]
        for colour, (what, one) in enumerate(part.groupby("what", sort=False)):
            axis.semilogy(one["epoch"], one["value"], "o-", ms=3, color=COLOURS[colour], label=what)
        axis.set(title=f"robust.{score}", xlabel="epoch")
    axes[0].legend(fontsize="x-small")
    cells = frame.drop_duplicates("what").set_index("what")["cell"]
    summary = last[["clean 0/255", "pgd 3/255", "pgd 8/255"]].assign(cell=cells)
    return Outcome(
        frame,
        figure,
        {"seed": SEED, "images": IMAGES, **SIZES},
        (
            f"Trained with β = 1, {SIZES['channels']} channels, one cell per stage, "
            f"{SIZES['train']} images, {EPOCHS} epochs. Kernels are of {IMAGES} training "
            "images, by running statistics, which at epoch 0 nothing has moved.",
        ),
        tuple(findings),
        summary.round(3).reset_index(),
    )
