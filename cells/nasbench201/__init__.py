"""NAS-Bench-201: its cells, and its networks as a search space."""

from cells.nasbench201.space import NASBench201 as NASBench201
