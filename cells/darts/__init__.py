"""The DARTS space: its genotypes, and its networks as a search space."""

from cells.darts.genotype import Genotype as Genotype
from cells.darts.genotype import Genotypes as Genotypes
from cells.darts.space import Darts as Darts
