"""Train-free NTK scores for robust neural architecture search, for any network and any space."""

import ntkscore.neighbours  # noqa: F401  # isort: split
from attacks import fgsm as fgsm
from attacks import pgd as pgd
from attacks import twice as twice
from cells import Cell as Cell
from cells import Space as Space
from cells import Task as Task
from cells import option as option
from cells.model import Model as Model
from cells.nasbench201.space import NASBench201 as NASBench201
from cells.residual import Residual as Residual
from ntkscore.analysis.agreement import agreement as agreement
from ntkscore.analysis.paired import difference as difference
from ntkscore.api import correlate as correlate
from ntkscore.api import lookup as lookup
from ntkscore.api import open_results as open_results
from ntkscore.api import rank as rank
from ntkscore.api import score as score
from ntkscore.api import score_network as score_network
from ntkscore.config import Config as Config
from ntkscore.data import Table as Table
from ntkscore.data import draw_images as draw_images
from ntkscore.data import fetch as fetch
from ntkscore.data import load as load_images  # noqa: F401
from ntkscore.data import load_table as load_table
from ntkscore.errors import InputError as InputError
from ntkscore.kernels import add_score as add_score
from ntkscore.kernels import joint_kernel as joint_kernel
from ntkscore.kernels import measure as measure
from ntkscore.kernels import ntk as ntk
from ntkscore.kernels import stack as stack

__version__ = "0.2.0"
