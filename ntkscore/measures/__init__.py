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

ON_THE_WAY = (kernel, slopes, inside, changes, synflow, loss)
WITH_PASSES_OF_THEIR_OWN = (weight_gradients, zen, trainability, fisher, perturbations)

# In the order in which rows and sheets have them.
for family in (*ON_THE_WAY, *WITH_PASSES_OF_THEIR_OWN):
    MEASURES.update({measure.name: measure for measure in family.MEASURES})
