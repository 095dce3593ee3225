"""Train-free NTK scores for robust neural architecture search, for any network and any space.

The names and their places are in `__init__.pyi`, for type checkers and for whoever runs the code.
They are imported when they are first used, so that `import ntkscore` is quick.
"""

import importlib
from pathlib import Path

import lazy_loader

__version__ = "0.3.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

_HERE = Path(__file__).resolve().parents[1]
for _name in ("attacks", "cells"):
    _place = Path(next(iter(importlib.import_module(_name).__path__))).resolve()
    if _place.parent != _HERE:
        raise ImportError(
            f"expected ntkscore's own package {_name!r} at {_HERE / _name}, got another one at "
            f"{_place}; take that folder off the import path or rename it"
        )
