"""Every figure and table of the main paper, and what its kernels do under other settings."""

from experiments.frame import Study
from experiments.paper.accuracies import BOXES, DISTRIBUTION
from experiments.paper.conventions import ATTACKS, CONVENTIONS
from experiments.paper.fidelity import FIDELITY
from experiments.paper.measures import MEASURES
from experiments.paper.ntk_correlation import NTK_CORRELATION
from experiments.paper.ranks import ACROSS_DATASETS, BY_METRIC
from experiments.paper.sweep import SWEEP
from experiments.paper.table_agreement import AGREEMENT
from experiments.paper.top_operations import TOP_OPERATIONS

PAPER: dict[str, Study] = {
    "benchmark-boxplots": BOXES,
    "accuracy-distribution": DISTRIBUTION,
    "rank-by-metric": BY_METRIC,
    "rank-across-datasets": ACROSS_DATASETS,
    "top-operations": TOP_OPERATIONS,
    "benchmark-agreement": AGREEMENT,
    "ntk-correlation": NTK_CORRELATION,
    "sweep": SWEEP,
    "conventions": CONVENTIONS,
    "attacks": ATTACKS,
    "fidelity": FIDELITY,
    "measures": MEASURES,
}
