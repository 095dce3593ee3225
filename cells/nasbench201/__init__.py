"""The cells of NAS-Bench-201 and their networks; the names here need no JAX."""

from cells.nasbench201.canonical import canonical as canonical
from cells.nasbench201.canonical import distinct_cells as distinct_cells
from cells.nasbench201.cell import EDGES as EDGES
from cells.nasbench201.cell import OPERATIONS as OPERATIONS
from cells.nasbench201.cell import SIZE as SIZE
from cells.nasbench201.cell import Cell as Cell
from cells.nasbench201.cell import all_cells as all_cells
from cells.nasbench201.space import NASBench201 as NASBench201
