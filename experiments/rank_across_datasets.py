"""Where a cell stands on three data sets, by mean robust accuracy (Figure 3c)."""

import pandas as pd

from experiments.rank_by_metric import BEST, agreements, draw, findings, ranks, spoken
from experiments.study import MEANS, Outcome, Study
from experiments.style import DATASET_LABELS
from ntkscore.comparison import ROBUST_MEAN, table_scores

REFERENCE = "cifar10"


def run(study: Study) -> Outcome:
    """Ranks on the other data sets over the rank on CIFAR-10."""
    robust = {name: table_scores(study.table, name)[ROBUST_MEAN] for name in study.table.datasets}
    places = ranks(pd.DataFrame(robust), REFERENCE)
    labels = {name: DATASET_LABELS[name] for name in robust if name != REFERENCE}
    by = f"rank by mean robust accuracy on {DATASET_LABELS[REFERENCE]}"
    remarks = (*spoken(agreements(places, REFERENCE), labels), MEANS)
    configuration = {"table": study.table.name, "metric": ROBUST_MEAN, "best": BEST}
    found = findings(agreements(places, REFERENCE), labels)
    return Outcome(places, draw(places, REFERENCE, labels, by), configuration, remarks, found)
