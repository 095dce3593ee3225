"""What experiments that have not moved take from the studies of the paper; it goes with them."""

from experiments.paper.measures import LABELS as LABELS
from experiments.paper.measures import PUBLISHED as PUBLISHED
from experiments.paper.measures import RECORDINGS
from experiments.paper.measures import SUMS as SUMS
from experiments.paper.measures import measured as measured
from experiments.paper.measures import recorded as recorded
from experiments.paper.measures import with_counts as with_counts
from experiments.study import Study


def settings(study: Study) -> dict[str, object]:
    """Recordings and table that the numbers depend on."""
    return {"recordings": study.configurations(RECORDINGS), "table": study.table.name}
