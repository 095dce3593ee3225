"""Measures that take passes of their own, and published sums of them, beside the others.

They are recorded for a part of the table and one seed; some measures that all of it is recorded
with stand beside them, on the cells that all of them could be measured for.
"""

import pandas as pd

from experiments.ours import measures
from experiments.study import Outcome, Study, sum_named
from ntkscore.analysis.score_names import DEFAULT
from ntkscore.kernels.proxies import NUMBERS

RECORDING = "proxies"
SUMS = {
    "flops+clean.expressivity+clean.progressivity+clean.trainability": "AZ-NAS",
    "layers+flops+clean.expressivity+clean.trainability+clean.jacov": "VKDNW's, by layers alone",
    f"{DEFAULT}+network.zen": "the default and Zen",
    **measures.SUMS,
}
"""Sums that stand beside the measures, and their labels. VKDNW's has the count of layers in the
place of its own score, which is that count and less than 2.2."""
BESIDE = ("params", "clean.lambda_min_normalized", "clean.frobenius", "network.synflow")


def run(study: Study) -> Outcome:
    """The table and figure of these measures."""
    rows = study.rows(RECORDING)
    scores = measures.with_counts(rows)
    own = [
        f"{kernel}.{name}"
        for name, number in NUMBERS.items()
        if number.own_passes
        for kernel in number.at
        if f"{kernel}.{name}" in scores  # the others are recorded by themselves, of all networks
    ]
    scores, recorded = scores.dropna(subset=[*own, *BESIDE]), len(scores)
    scores = scores.assign(**{name: sum_named(name).of(scores) for name in SUMS})
    frame = pd.DataFrame(measures.examine(study, scores, [*own, *BESIDE, *SUMS]))
    return Outcome(
        frame,
        measures.draw(frame, SUMS),
        {"recordings": study.configurations([RECORDING]), "table": study.table.name},
        (
            f"{len(scores):,} of {recorded:,} recorded cells of the table, one seed; the others "
            "lack one of these measures.",
            "GradNorm, SNIP and ZiCo are of the loss, at the clean images and at X_ρ; ZiCo's "
            "batches are single images.",
        ),
        summary=measures.table(frame),
    )
