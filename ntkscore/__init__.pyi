# Each public name and where it is defined; `__init__.py` reads this when it runs.

from ntkscore.analysis.prediction import Predictor as Predictor
from ntkscore.api.accuracies import correlate as correlate
from ntkscore.api.accuracies import lookup as lookup
from ntkscore.api.latency import measure_latency as measure_latency
from ntkscore.api.prediction import predict as predict
from ntkscore.api.runs import Run as Run
from ntkscore.api.runs import open_run as open_run
from ntkscore.api.scoring import score as score
from ntkscore.api.searching import search as search
from ntkscore.api.targets import fits as fits
from ntkscore.bridges import from_torch as from_torch
from ntkscore.config import Config as Config
from ntkscore.data.costs import load_costs as load_costs
from ntkscore.data.downloads import fetch as fetch
from ntkscore.data.images import ImageSet as ImageSet
from ntkscore.data.images import load_images as load_images
from ntkscore.data.tables import Table as Table
from ntkscore.data.tables import load_table as load_table
from ntkscore.errors import InputError as InputError
from ntkscore.kernels.attacks import ATTACKS as ATTACKS
from ntkscore.kernels.features import gradient_features as gradient_features
from ntkscore.kernels.joint import joint_kernel as joint_kernel
from ntkscore.kernels.ntk import ntk as ntk
from ntkscore.kernels.operator import ntk_operator as ntk_operator
from ntkscore.kernels.stack import stack as stack
from ntkscore.measures.kernel import add_score as add_score
from ntkscore.measures.kernel import measure as measure
from ntkscore.measures.registry import add_measure as add_measure
from ntkscore.model import Activations as Activations
from ntkscore.model import Model as Model
from ntkscore.options import option as option
from ntkscore.space import Space as Space
from ntkscore.task import Task as Task
from ntkscore.trace.anatomy import anatomy as anatomy
from ntkscore.training.evaluation import evaluate as evaluate
from ntkscore.training.recipe import Recipe as Recipe
from ntkscore.training.robustness import robustness as robustness
from ntkscore.training.runs import train as train

__version__: str
