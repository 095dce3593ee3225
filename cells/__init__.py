"""The NAS-Bench-201 search space and its networks."""

from cells.canonical import canonical as canonical
from cells.canonical import distinct_cells as distinct_cells
from cells.space import EDGES as EDGES
from cells.space import OPERATIONS as OPERATIONS
from cells.space import SIZE as SIZE
from cells.space import Cell as Cell
from cells.space import CellError as CellError
from cells.space import all_cells as all_cells
