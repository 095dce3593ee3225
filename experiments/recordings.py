"""Recordings: the scores that the figures need, computed once and kept.

`python -m experiments record NAME` computes one, or resumes it, and keeps the part that the figures
use under `experiments/results/NAME`: a result directory like any other, which `ntkscore correlate`
reads too.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cells.darts import Darts
from cells.nasbench201.space import NASBench201
from experiments.data import BENCHMARK, DARTS_TABLE, DATASET, KERNELS, RECORDED
from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.cli.display import progress_display
from ntkscore.config import Config
from ntkscore.data.images import load_images
from ntkscore.data.tables import load_table
from ntkscore.errors import InputError
from ntkscore.kernels.joint import JOINT
from ntkscore.measures.kernel import KERNEL
from ntkscore.measures.registry import measures_of
from ntkscore.options import options
from ntkscore.paths import RECORDED as IN_PACKAGE
from ntkscore.results.result_set import ResultSet, provenance
from ntkscore.run import devices, engine
from ntkscore.run.scoring import Scoring
from ntkscore.run.selection import select
from ntkscore.space import Space

GRID = tuple(round(0.1 * i, 1) for i in range(11))
"""Weights β of adversarial training."""
RADII = tuple(level / 255 for level in (1, 2, 3, 4, 6, 8, 12, 16))
JOINT_SCORES = ("frobenius", "trace", "lambda_min")
DRAWN = ("frobenius", "lambda_min", "lambda_min_normalized")
"""Scores of a kernel in the figure of coefficients."""
OF_KERNELS = tuple(f"{kernel}.{score}" for kernel in KERNELS for score in DRAWN)
"""Those scores of each kernel, as a recording names them."""
BITS = 14
"""Mantissa bits kept of a kernel's scores (relative precision 6e-5); ranks need no more. Other
measures, logarithms for the most part, are kept as they are."""

Choices = dict[str, Any]
FULL_FIDELITY: Choices = {"samples": 50, "channels": 16, "cells_per_stage": 5}
MODERATE: Choices = {"samples": 16, "channels": 8, "cells_per_stage": 5}
"""A fidelity that two cores can afford for the whole table; experiment `fidelity` compares it."""
FEW_IMAGES: Choices = {"samples": 8, "channels": 16, "cells_per_stage": 5}
"""The fidelity that experiment `fidelity` advises for norms: fewer images before fewer channels."""
SMALL: Choices = {"samples": 16, "channels": 8, "cells_per_stage": 1}
"""The fidelity of `make rank`."""
TINY: Choices = {"samples": 8, "channels": 4, "cells_per_stage": 1}
"""The fidelity for coupled images, whose kernels take minutes a cell at the moderate one."""


@dataclass(frozen=True)
class Recording:
    """Settings of a recording.

    Attributes:
        choices: `samples`, and fields of `Config` and of the space; the others have their
            defaults.
        cells: specification of the cells for `ntkscore.run.selection.select`.
        seeds: number of seeds of images and weights, from 0 on.
        images: the data set that they are drawn from.
        only: the scores that are kept, KERNEL.SCORE; what figures use if left out.
        of: the class of the space.
        table: the folder of the table that `cells` may name.
    """

    choices: Choices
    cells: str = "table"
    seeds: int = 3
    images: str = DATASET
    only: tuple[str, ...] = ()
    of: type[Space] = NASBench201
    table: str = BENCHMARK

    def _chosen(self, cls: type) -> Choices:
        return {f.name: self.choices[f.name] for f in options(cls) if f.name in self.choices}

    @property
    def space(self) -> Any:
        """The cells' networks."""
        return self.of(**self._chosen(self.of))

    @property
    def drawn(self) -> Choices:
        """How many images a draw has, and whether it is balanced."""
        return {"samples": self.choices["samples"], "balanced": False}

    @property
    def config(self) -> Config:
        """The config that they are scored with."""
        return Config(**self._chosen(Config))


PROXIES = {
    name: Recording(MODERATE | {"proxies": True}, only=scores)
    for name, scores in {
        "trainability": ("clean.trainability",),
        "perturbations": ("clean.stability", "clean.flip_distance"),
        "weights": (
            "network.zen",
            *(f"clean.{name}" for name in ("grad_norm", "snip", "zico", "fisher_entropy", "vkdnw")),
            *(f"robust.{name}" for name in ("grad_norm", "snip", "zico")),
        ),
    }.items()
}
"""Measures of all networks of `space` that take passes of their own; one run gives all three."""

CALIBRATED_SUM, INSTANCE_LOSS = "calibrated-sum", "instance-loss"
_KNAS = {"bn": "instance", "output": "loss"}
_HE = _KNAS | {"init": "he_fan_out"}
FINDINGS = {
    f"findings/{name}-{attack}": Recording(
        choices | {"attack": attack, "rhos": (3 / 255, 8 / 255)}, f"table:{cells}", seeds, only=only
    )
    for name, choices, cells, seeds, only in (
        (CALIBRATED_SUM, FEW_IMAGES | {"bn": "calibrated", "output": "sum"}, 1000, 3, ()),
        (INSTANCE_LOSS, FEW_IMAGES | _KNAS, 1000, 3, ()),
        (f"{INSTANCE_LOSS}-he_fan_out", FEW_IMAGES | _HE, 500, 3, OF_KERNELS),
        ("fifty", FULL_FIDELITY, 1000, 1, OF_KERNELS),
    )
    for attack in ("fgsm", "pgd")
}
"""The conventions under which the paper's findings are tested: our default; KNAS's, which the
paper says it follows; and KNAS's with weights drawn by He's rule, fan-out, where the paper is
silent. The last are at the paper's fidelity, on a GPU lent for so long that 768 of the 1,000 cells
were done, in groups whose order is random."""

INITS = ("he", "he_fan_out", "xavier", "ntk")
_CHOICES = {
    "default": {},
    "knas": _KNAS,
    "hnas": {"output": "label"},
    "paper": _KNAS | {"attack": "pgd"},
    "attack-pgd": {"attack": "pgd"},
    "output-loss": {"output": "loss"},
    "output-loss-attack-pgd": {"output": "loss", "attack": "pgd"},
    "bn-instance": {"bn": "instance"},
    "bn-init": {"bn": "init"},
    "output-trace": {"output": "trace"},
    "parameters-weights": {"parameters": "weights"},
    "parameters-conv_linear": {"parameters": "conv_linear"},
    **{f"init-{name}": {"init": name} for name in INITS},
    **{f"bn-init-init-{name}": {"bn": "init", "init": name} for name in INITS},
}
_TINY_CHOICES = {
    "tiny": {},
    "tiny-bn-batch": {"bn": "batch"},
    "tiny-tenas": {"init": "he", "bn": "batch", "output": "sum", "parameters": "weights"},
}
PRESETS = ("tiny-tenas", "knas", "hnas", "paper")
"""Conventions named after the work that they follow; where it is silent, they are our default.
The paper says that it follows KNAS."""
CONVENTIONS = {
    f"conventions/{name}": Recording(fidelity | choices, "table:100", 1)
    for fidelity, conventions in ((MODERATE, _CHOICES), (TINY, _TINY_CHOICES))
    for name, choices in conventions.items()
}

_SIZES = {
    "full": {},
    "samples-8": {"samples": 8},
    "samples-16": {"samples": 16},
    "channels-4": {"channels": 4},
    "channels-8": {"channels": 8},
    "cells-1": {"cells_per_stage": 1},
    "cells-3": {"cells_per_stage": 3},
    "moderate": {"samples": 16, "channels": 8},
    "shallow": {"samples": 16, "channels": 8, "cells_per_stage": 3},
    "small": SMALL,
    "narrow": {"samples": 16, "channels": 4},
}
FIDELITIES = {
    f"fidelity/{name}": Recording(FULL_FIDELITY | sizes, "table:40")
    for name, sizes in _SIZES.items()
}

REFERENCE = "small-synthetic"
"""A whole space of `make rank`'s fidelity and images, whose percentiles go into the package."""
_OF_DEFAULTS = ("network.synflow", "clean.lambda_min_normalized", "clean.naswot")
"""Terms of the default and of those before."""

RECORDINGS: dict[str, Recording] = {
    "space": Recording(MODERATE | {"betas": GRID}),
    "space-pgd": Recording(MODERATE | {"attack": "pgd"}, only=OF_KERNELS),
    "space-apgd": Recording(MODERATE | {"attack": "apgd"}, "table:200", 2, only=OF_KERNELS),
    **PROXIES,
    "radii": Recording(MODERATE | {"rhos": RADII, "betas": GRID}, "table:1000"),
    **FINDINGS,
    **CONVENTIONS,
    **FIDELITIES,
    # Enough cells to tell a correlation's sign at the small fidelity; `space` is the deeper twin.
    "signs": Recording(SMALL, "table:600"),
    REFERENCE: Recording(SMALL, "distinct", images="synthetic", only=_OF_DEFAULTS),
    # Every measure of the genotypes that Tiny-RobustBench trained, at their size.
    "darts/trained": Recording(
        {"channels": 16, "layers": 8, "samples": 16, "proxies": True}, of=Darts, table=DARTS_TABLE
    ),
}


def recordings_named(starts: Sequence[str]) -> list[str]:
    """Names of recordings; a text that is no name stands for all names that begin with it.

    Raises:
        InputError: if no name begins with one of them.
    """
    found = []
    for start in starts:
        named = [name for name in RECORDINGS if name.startswith(start)]
        if not named:
            raise InputError(
                f"one of {', '.join(RECORDINGS)}, or how some of them begin",
                repr(start),
                "choose one",
            )
        found += [start] if start in RECORDINGS else named
    return list(dict.fromkeys(found))


def round_mantissa(values: np.ndarray, bits: int = BITS) -> np.ndarray:
    """Values rounded to some bits of their mantissa; infinities and NaN stay."""
    mantissas, exponents = np.frexp(values)
    return np.ldexp(np.round(mantissas * 2**bits) / 2**bits, exponents)


def kept_rows(rows: pd.DataFrame, only: Sequence[str] = ()) -> pd.DataFrame:
    """The rows of some scores, else those that the figures use; the scores of kernels rounded."""
    if only:
        used = rows[(rows["kernel"] + "." + rows["score"]).isin(only)]
    else:
        used = rows[~rows["kernel"].isin(JOINT) | rows["score"].isin(JOINT_SCORES)]
    kernels = used["score"].isin([*measures_of(KERNEL)])
    return used.assign(value=used["value"].mask(kernels, round_mantissa(used["value"].to_numpy())))


def record(name: str, data_dir: Path, work: Path, out: Path = RECORDED) -> Path:
    """Compute a recording, or the rest of it, and keep the part that the figures use.

    Args:
        name: a name in `RECORDINGS`.
        data_dir: the folder with images and table.
        work: the folder for the full result directories.
        out: the folder for the kept ones; references go into the package.

    Returns:
        The kept result directory.
    """
    recording = RECORDINGS[name]
    devices.prepare()
    images = load_images(recording.images, data_dir, **recording.drawn)
    space = recording.space
    cells = select(recording.cells, space, load_table(data_dir / recording.table))
    job = Scoring.of(images, recording.config, space=space, seeds=recording.seeds)
    out = SHIPPED if name == REFERENCE else out
    told: list[engine.Progress] = []
    with progress_display() as report:
        folder = work / ("proxies" if name in PROXIES else name)

        def tell(progress: engine.Progress) -> None:
            told.append(progress)
            report(progress)

        full = engine.run(job, cells, folder, report=tell)
    progress = told[-1]
    rate = progress.rate
    session = provenance(
        {
            "command": f"python -m experiments record {name}",
            "cells": recording.cells,
            "seeds": recording.seeds,
            "devices": progress.plan.kinds,
            "seconds_per_cell": round(1 / rate, 4) if rate else None,
        }
    )
    del session["platform"]  # Recordings are published; the machine's name is nobody's concern.
    if not rate and (out / name).is_dir():
        session["seconds_per_cell"] = ResultSet.open(out / name).sessions[-1]["seconds_per_cell"]
    rows = full.read()
    wanted = rows[full.identity[0]].isin([*map(space.key, cells)])
    wanted &= rows["seed"] < recording.seeds
    return replaced(out / name, full, session, kept_rows(rows[wanted], recording.only))


def replaced(folder: Path, like: ResultSet, session: dict[str, Any], rows: pd.DataFrame) -> Path:
    """Write a result directory anew, of the configuration of another."""
    for old in folder.glob("*"):
        old.unlink()
    kept = ResultSet.create_or_resume(folder, like.configuration, like.identity)
    kept.record(session).append(rows)
    return folder


def ship() -> Path:
    """Put the recorded scores of all cells into the package, joint kernels at β = 0.5 alone."""
    parts = [ResultSet.open(RECORDED / name) for name in ("space", *PROXIES)]
    rows = pd.concat([part.read() for part in parts], ignore_index=True)
    rows = rows[rows["beta"].isna() | (rows["beta"] == 0.5)]
    (session,) = parts[0].sessions
    return replaced(IN_PACKAGE, parts[0], session, rows)


def seconds_per_cell(results: ResultSet) -> float:
    """Seconds that a cell took when it was recorded; NaN where that is not known."""
    return float(results.sessions[-1].get("seconds_per_cell") or "nan")
