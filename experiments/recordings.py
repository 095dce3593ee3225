"""Our own recorded runs: the scores that the figures need, and the command that makes each.

`python -m experiments record NAME` computes one, going on where it stopped, and keeps the part
that the figures use under `experiments/results/NAME`: a result directory like any other, which
`ntkscore correlate` reads too.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.study import BENCHMARK, RECORDED
from ntkscore import devices
from ntkscore.config import Config
from ntkscore.display import progress_display
from ntkscore.engine import identity, run
from ntkscore.errors import InputError
from ntkscore.files import LOCK
from ntkscore.images import load
from ntkscore.joint import JOINT
from ntkscore.results import ResultSet, provenance
from ntkscore.selection import select_cells
from ntkscore.tables import load_table

DATASET = "cifar10"
GRID = tuple(round(0.1 * i, 1) for i in range(11))
"""Weights β of adversarial training."""
RADII = tuple(level / 255 for level in (1, 2, 3, 4, 6, 8, 12, 16))
JOINT_SCORES = ("frobenius", "trace", "lambda_min")
BITS = 14
"""Of a score's mantissa that are kept, relative 6e-5: float32 has 24, ranks need fewer."""

FULL_FIDELITY = Config(betas=(0.5,))
"""Full fidelity: 50 images, C = 16, five cells per stage."""
MODERATE = replace(FULL_FIDELITY, samples=16, channels=8)
"""What two cores can do for the whole table; `fidelity` says how far it agrees with full."""

SMALL = replace(FULL_FIDELITY, samples=8, channels=4, cells_per_stage=1)


@dataclass(frozen=True)
class Recording:
    """Scores that are kept.

    Attributes:
        config: how they were computed.
        cells: of which cells, a specification for `select_cells`.
        seeds: of images and weights, counted from 0.
    """

    config: Config
    cells: str = "table"
    seeds: int = 3


SPACE = {"space": Recording(replace(MODERATE, betas=GRID))}
SAMPLES = {
    "pgd-8": Recording(replace(MODERATE, attack="pgd"), "table:1000"),
    "pgd-3": Recording(replace(MODERATE, attack="pgd", rhos=(3 / 255,)), "table:250", 1),
    "radii": Recording(replace(MODERATE, rhos=RADII, betas=GRID), "table:448", 1),
}

_CHOICES = {
    "default": {},
    "knas": {"output": "loss"},
    "hnas": {"output": "label"},
    "paper": {"output": "loss", "attack": "pgd"},
    "bn-init": {"bn": "init"},
    "output-trace": {"output": "trace"},
    "parameters-weights": {"parameters": "weights"},
    "parameters-conv_linear": {"parameters": "conv_linear"},
    **{f"init-{name}": {"init": name} for name in ("he", "he_fan_out", "xavier", "ntk")},
    **{
        f"bn-init-init-{name}": {"bn": "init", "init": name}
        for name in ("he", "he_fan_out", "xavier", "ntk")
    },
}
_SMALL_CHOICES = {
    "small": {},
    "small-bn-batch": {"bn": "batch"},
    "small-tenas": {"init": "he", "bn": "batch", "output": "sum", "parameters": "weights"},
}
"""Where the images are coupled a kernel takes minutes at the other fidelity."""
PRESETS = ("small-tenas", "knas", "hnas", "paper")
"""Named after what they reproduce, as far as that says what it does; the rest is our default."""
CONVENTIONS = {
    f"conventions/{name}": Recording(replace(fidelity, **choices), "table:100", 1)
    for fidelity, named in ((MODERATE, _CHOICES), (SMALL, _SMALL_CHOICES))
    for name, choices in named.items()
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
    "small": {"samples": 16, "channels": 8, "cells_per_stage": 1},
    "narrow": {"samples": 16, "channels": 4},
}
FIDELITIES = {
    f"fidelity/{name}": Recording(replace(FULL_FIDELITY, **sizes), "table:40")
    for name, sizes in _SIZES.items()
}

RECORDINGS = SPACE | SAMPLES | CONVENTIONS | FIDELITIES


def matching(starts: Sequence[str]) -> list[str]:
    """The recordings of these names; a name that is none stands for those that begin with it.

    Raises:
        InputError: if one of them begins none.
    """
    for start in starts:
        if not any(name.startswith(start) for name in RECORDINGS):
            raise InputError(
                f"expected one of {', '.join(RECORDINGS)}, or how some of them begin, "
                f"got {start!r}; choose one"
            )
    exact = {start for start in starts if start in RECORDINGS}
    others = tuple(start for start in starts if start not in exact)
    return [name for name in RECORDINGS if name in exact or name.startswith(others)]


def rounded(values: np.ndarray, bits: int = BITS) -> np.ndarray:
    """Values rounded to so many bits of their mantissa; what is not finite stays."""
    mantissas, exponents = np.frexp(values)
    return np.ldexp(np.round(mantissas * 2**bits) / 2**bits, exponents)


def thinned(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows that the figures use, rounded.

    Args:
        rows: of a result set.
    """
    joint = rows["kernel"].isin(JOINT)
    kept = rows[~joint | rows["score"].isin(JOINT_SCORES)]
    return kept.assign(value=rounded(kept["value"].to_numpy()))


def record(name: str, data_dir: Path, work: Path, out: Path = RECORDED) -> Path:
    """Compute a recording, or the rest of it, and keep what the figures use.

    Args:
        name: of `RECORDINGS`.
        data_dir: the folder with images and table.
        work: where the full result directories are.
        out: where the kept ones go.

    Returns:
        The kept result directory.
    """
    recording, config = RECORDINGS[name], RECORDINGS[name].config
    devices.keep_compiled()
    devices.cores_as_devices()
    images = load(DATASET, data_dir)
    cells = select_cells(recording.cells, load_table(data_dir / BENCHMARK))
    session = provenance()
    del session["platform"]  # What is kept is published; the machine's name is nobody's concern.
    full = ResultSet.create_or_resume(work / name, identity(images, config), session)
    with progress_display() as report:
        progress = run(cells, range(recording.seeds), images, config, full, report)
    session |= {
        "command": f"python -m experiments record {name}",
        "cells": recording.cells,
        "seeds": recording.seeds,
        "devices": [device.device_kind for device in progress.plan.devices],
        "seconds_per_cell": round(1 / progress.rate, 4) if progress.rate else None,
    }
    if not progress.rate and (out / name).is_dir():
        session["seconds_per_cell"] = ResultSet.open(out / name).sessions[-1]["seconds_per_cell"]
    for old in (out / name).glob("*"):
        old.unlink()
    kept = ResultSet.create_or_resume(out / name, full.configuration, session)
    rows = full.read()
    asked = rows["cell"].isin([cell.index for cell in cells]) & (rows["seed"] < recording.seeds)
    kept.append(thinned(rows[asked]))
    (kept.directory / LOCK).unlink(missing_ok=True)
    return kept.directory


def seconds_per_cell(results: ResultSet) -> float:
    """What a cell took when it was recorded, NaN where that is not known."""
    return float(results.sessions[-1].get("seconds_per_cell") or "nan")
