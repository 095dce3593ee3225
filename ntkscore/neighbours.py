"""Refuse to start where another package called `cells` or `attacks` lies in the way."""

from pathlib import Path

import attacks
import cells

_HERE = Path(__file__).resolve().parent
for _package in (cells, attacks):
    _place = Path(next(iter(_package.__path__))).resolve()
    if _place.parent != _HERE.parent:
        raise ImportError(
            f"expected ntkscore's own package {_place.name!r} at {_HERE.parent / _place.name}, got "
            f"another one at {_place}; take that folder off the import path or rename it"
        )
