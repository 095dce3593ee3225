# Each public name and where it is defined; `__init__.py` reads this when it runs.

from .analysis.agreement import agreement as agreement
from .analysis.paired import difference as difference
from .api.accuracies import correlate as correlate
from .api.accuracies import lookup as lookup
from .api.rankings import rank_results as rank_results
from .api.recorded import recorded_scores as recorded_scores
from .api.runs import open_results as open_results
from .api.runs import percentiles as percentiles
from .api.runs import rank as rank
from .api.scoring import score as score
from .api.scoring import score_network as score_network
from .api.search import search as search
from .bridges import from_torch as from_torch
from .config import Config as Config
from .data.downloads import fetch as fetch
from .data.images import draw_images as draw_images
from .data.images import load_images as load_images
from .data.tables import Table as Table
from .data.tables import load_table as load_table
from .errors import InputError as InputError
from .kernels.gram import ntk as ntk
from .kernels.joint import joint_kernel as joint_kernel
from .kernels.proxies import add_score as add_score
from .kernels.scores import measure as measure
from .kernels.stack import stack as stack
from .model import Activations as Activations
from .model import Model as Model
from .neighbours import Cell as Cell
from .neighbours import NASBench201 as NASBench201
from .neighbours import Residual as Residual
from .neighbours import Space as Space
from .neighbours import Task as Task
from .neighbours import fgsm as fgsm
from .neighbours import option as option
from .neighbours import pgd as pgd
from .neighbours import twice as twice
from .trace.anatomy import anatomy as anatomy

__version__: str
