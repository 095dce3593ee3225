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
"""

import itertools
import time
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from cells.wideresnet import Stages, WideResNet
from experiments.data import DATASET, RECORDED
from ntkscore.data.images import load_images
from ntkscore.data.nares import DEPTHS, WIDTHS
from ntkscore.paths import data_home
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run import calls, devices
from ntkscore.run.scoring import Scoring

NARES = "nares"
"""The recording's name."""
KERNELS = ("clean", "robust")
KEPT = ("lambda_min_normalized", "frobenius", "trace", "naswot", "expressivity")
"""Scores of these kernels, or at their images, that are recorded."""
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
    start, home = time.monotonic(), data_home(data_dir)
    images = load_images(DATASET, home, samples=samples)
    job = Scoring.of(images, space=WideResNet(channels=2), seeds=seeds)
    chosen = drawn()[:most]
    kept = ResultSet.create_or_resume(out, job.configuration, [*job.space.identity(chosen[0])])
    session = provenance({"command": "python -m experiments.tools score-nares"})
    del session["platform"]
    work = calls.Work(job.space, job.config, job.draws, chosen, kept.finished())
    rest = calls.compute(work, devices.one_device())
    next(rest)  # the plan alone
    while some := [*itertools.islice(rest, AT_ONCE)]:
        every = itertools.chain(*(rows for _, by_network in some for rows in by_network))
        kept.record(session).append(
            row for row in every if row["kernel"] in KERNELS and row["score"] in KEPT
        )
        if time.monotonic() - start > seconds:
            break
    kept.compact()
