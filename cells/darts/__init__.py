"""The DARTS space: its genotypes, and its networks as a search space."""
