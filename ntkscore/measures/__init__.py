"""Train-free measures, one file per family: each is declared beside what it is computed from."""

from ntkscore.measures import (
    activations,
    changes,
    fisher,
    forward_pass,
    kernel,
    perturbations,
    rectifiers,
    slopes,
    synflow,
    trainability,
    weight_gradients,
    zen,
)
from ntkscore.measures.registry import MEASURES

WITH_THE_KERNELS = (kernel, slopes, activations, changes, synflow, forward_pass)
WITH_PASSES_OF_THEIR_OWN = (weight_gradients, zen, trainability, fisher, perturbations, rectifiers)

# In the order in which rows and sheets have them.
for family in (*WITH_THE_KERNELS, *WITH_PASSES_OF_THEIR_OWN):
    MEASURES.update({measure.name: measure for measure in family.MEASURES})
