"""Train-free measures, one file per family: each is declared beside what it is computed from."""

from ntkscore.measures import (
    changes,
    fisher,
    inside,
    kernel,
    loss,
    perturbations,
    slopes,
    synflow,
    trainability,
    weight_gradients,
    zen,
)
from ntkscore.measures.declaration import MEASURES

# In the order in which rows and sheets have them.
for family in (
    kernel,
    slopes,
    inside,
    changes,
    synflow,
    loss,
    weight_gradients,
    zen,
    trainability,
    fisher,
    perturbations,
):
    MEASURES.update({measure.name: measure for measure in family.MEASURES})
