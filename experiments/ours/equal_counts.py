"""What experiments that have not moved take from the paper's contrasts; it goes with them."""

import numpy as np
from jaxtyping import Float

from experiments.paper.contrasts import partials as partials
from ntkscore.analysis.correlation import percentile_interval


def with_interval(values: Float[np.ndarray, " resamples"]) -> tuple[float, float, float]:
    """The first value, and the 95 % interval of the others."""
    return float(values[0]), *percentile_interval(values[1:])
