"""Train-free NTK scores for robust neural architecture search on NAS-Bench-201."""

from pathlib import Path

import attacks
import cells

_HERE = Path(__file__).resolve().parent
for _package in (cells, attacks):
    _found = Path(next(iter(_package.__path__))).resolve()
    if _found.parent != _HERE.parent:
        raise ImportError(
            f"expected ntkscore's own package {_found.name!r} at {_HERE.parent / _found.name}, got "
            f"another one at {_found}; take that folder off the import path or rename it"
        )

from cells import Cell as Cell  # noqa: E402
from ntkscore.config import Config as Config  # noqa: E402
from ntkscore.errors import InputError as InputError  # noqa: E402
from ntkscore.images import choose as choose  # noqa: E402
from ntkscore.images import load as load_images  # noqa: E402, F401
from ntkscore.scorer import score as score  # noqa: E402
from ntkscore.tables import load_table as load_table  # noqa: E402
