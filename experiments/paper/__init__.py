"""Every figure and table of the main paper, and what its kernels do under other settings."""

from experiments.frame import Study
from experiments.paper.accuracies import BOXES, DISTRIBUTION
from experiments.paper.ranks import ACROSS_DATASETS, BY_METRIC
from experiments.paper.search import SEARCH
from experiments.paper.sparsity import SPARSITY
from experiments.paper.table_agreement import AGREEMENT
from experiments.paper.top_operations import TOP_OPERATIONS

PAPER: dict[str, Study] = {
    "benchmark-boxplots": BOXES,
    "accuracy-distribution": DISTRIBUTION,
    "rank-by-metric": BY_METRIC,
    "rank-across-datasets": ACROSS_DATASETS,
    "top-operations": TOP_OPERATIONS,
    "benchmark-agreement": AGREEMENT,
    "sparsity": SPARSITY,
    "search": SEARCH,
}
