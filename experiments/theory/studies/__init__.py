"""The studies of the theory by name, in the order of the page."""

from experiments.frame import Study
from experiments.theory.studies import eigenvalue, lazy, tradeoff

STUDIES: dict[str, Study] = {
    "theory-eigenvalue": eigenvalue.STUDY,
    "theory-tradeoff": tradeoff.STUDY,
    "theory-lazy": lazy.STUDY,
}
