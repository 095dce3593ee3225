"""Train-free NTK scores for robust neural architecture search, for any network and any space.

Names are imported when they are first used, so that `import ntkscore` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import ntkscore.neighbours  # noqa: F401

__version__ = "0.3.0"

if TYPE_CHECKING:
    from attacks import fgsm as fgsm
    from attacks import pgd as pgd
    from attacks import twice as twice
    from cells import Cell as Cell
    from cells import Space as Space
    from cells import Task as Task
    from cells import option as option
    from cells.nasbench201.space import NASBench201 as NASBench201
    from cells.residual import Residual as Residual
    from ntkscore.analysis.agreement import agreement as agreement
    from ntkscore.analysis.paired import difference as difference
    from ntkscore.api.accuracies import correlate as correlate
    from ntkscore.api.accuracies import lookup as lookup
    from ntkscore.api.runs import open_results as open_results
    from ntkscore.api.runs import percentiles as percentiles
    from ntkscore.api.runs import rank as rank
    from ntkscore.api.runs import rank_results as rank_results
    from ntkscore.api.runs import recorded_scores as recorded_scores
    from ntkscore.api.runs import search as search
    from ntkscore.api.scoring import score as score
    from ntkscore.api.scoring import score_network as score_network
    from ntkscore.bridges import from_torch as from_torch
    from ntkscore.config import Config as Config
    from ntkscore.data.downloads import fetch as fetch
    from ntkscore.data.images import draw_images as draw_images
    from ntkscore.data.images import load as load_images  # noqa: F401
    from ntkscore.data.tables import Table as Table
    from ntkscore.data.tables import load_table as load_table
    from ntkscore.errors import InputError as InputError
    from ntkscore.kernels.gram import ntk as ntk
    from ntkscore.kernels.joint import joint_kernel as joint_kernel
    from ntkscore.kernels.stack import stack as stack
    from ntkscore.measures.declaration import add_measure as add_measure
    from ntkscore.measures.kernel import add_score as add_score
    from ntkscore.measures.kernel import measure as measure
    from ntkscore.model import Activations as Activations
    from ntkscore.model import Model as Model
    from ntkscore.run.job import Job as Job
    from ntkscore.trace.anatomy import anatomy as anatomy
else:
    PLACES = {
        "fgsm": "attacks.fgsm",
        "pgd": "attacks.pgd",
        "twice": "attacks.twice",
        "Cell": "cells.Cell",
        "Space": "cells.Space",
        "Task": "cells.Task",
        "option": "cells.option",
        "Activations": "ntkscore.model.Activations",
        "Model": "ntkscore.model.Model",
        "NASBench201": "cells.nasbench201.space.NASBench201",
        "Residual": "cells.residual.Residual",
        "agreement": "ntkscore.analysis.agreement.agreement",
        "difference": "ntkscore.analysis.paired.difference",
        "correlate": "ntkscore.api.accuracies.correlate",
        "lookup": "ntkscore.api.accuracies.lookup",
        "rank_results": "ntkscore.api.runs.rank_results",
        "recorded_scores": "ntkscore.api.runs.recorded_scores",
        "open_results": "ntkscore.api.runs.open_results",
        "percentiles": "ntkscore.api.runs.percentiles",
        "rank": "ntkscore.api.runs.rank",
        "score": "ntkscore.api.scoring.score",
        "score_network": "ntkscore.api.scoring.score_network",
        "search": "ntkscore.api.runs.search",
        "from_torch": "ntkscore.bridges.from_torch",
        "Config": "ntkscore.config.Config",
        "fetch": "ntkscore.data.downloads.fetch",
        "draw_images": "ntkscore.data.images.draw_images",
        "load_images": "ntkscore.data.images.load",
        "Table": "ntkscore.data.tables.Table",
        "load_table": "ntkscore.data.tables.load_table",
        "InputError": "ntkscore.errors.InputError",
        "ntk": "ntkscore.kernels.gram.ntk",
        "joint_kernel": "ntkscore.kernels.joint.joint_kernel",
        "stack": "ntkscore.kernels.stack.stack",
        "add_measure": "ntkscore.measures.declaration.add_measure",
        "add_score": "ntkscore.measures.kernel.add_score",
        "measure": "ntkscore.measures.kernel.measure",
        "Job": "ntkscore.run.job.Job",
        "anatomy": "ntkscore.trace.anatomy.anatomy",
    }
    """Where each public name is defined: as above, for whoever runs the code."""

    __all__ = [*PLACES]

    def __getattr__(name: str) -> Any:
        if name not in PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, _, attribute = PLACES[name].rpartition(".")
        value = globals()[name] = getattr(import_module(module), attribute)
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *PLACES})
