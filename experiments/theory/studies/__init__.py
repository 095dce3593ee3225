"""The studies of the theory by name, in the order of the page."""

from experiments.frame import Study
from experiments.theory.studies import (
    eigenvalue,
    features,
    lazy,
    lazy_adversarial,
    lazy_stability,
    tradeoff,
)

STUDIES: dict[str, Study] = {
    "theory-eigenvalue": eigenvalue.STUDY,
    "theory-tradeoff": tradeoff.STUDY,
    "theory-lazy": lazy.STUDY,
    "theory-features": features.STUDY,
    "theory-lazy-adversarial": lazy_adversarial.STUDY,
    "theory-lazy-stability": lazy_stability.STUDY,
}
