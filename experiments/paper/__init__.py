"""Every figure and table of the main paper, and what its kernels do under other settings."""

from experiments.frame import Study
from experiments.paper import (
    conventions,
    default_score,
    fidelity,
    measures,
    ntk_correlation,
    standard_training,
    sweep,
)

PAPER: dict[str, Study] = {
    "ntk-correlation": ntk_correlation.STUDY,
    "sweep": sweep.STUDY,
    "conventions": conventions.STUDY,
    "fidelity": fidelity.STUDY,
    "measures": measures.STUDY,
    "default-score": default_score.STUDY,
    "standard-training": standard_training.STUDY,
}
