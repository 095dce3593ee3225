"""Train-free NTK scores for robust neural architecture search, for any network and any space.

The names and their places are in `__init__.pyi`, for type checkers and for whoever runs the code.
They and the modules below are imported when they are first used, so that this import is quick.
"""

import ast
import importlib
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

__version__ = "0.4.0.dev0"

_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_PLACES = {
    str(name.asname): (str(place.module), name.name)
    for place in _STUB.body
    if isinstance(place, ast.ImportFrom)
    for name in place.names
}
_TODAY = {
    "rank": "score(networks, images, out=…).rank()",
    "rank_results": "open_run(directory).rank()",
    "recorded_scores": "open_run().rows",
    "open_results": "open_run(directory)",
    "score_network": "score(model, (images, labels)).rows",
    "percentiles": "open_run(directory).rank(among=…)",
    "Job": "score or search",
    "draw_images": "load_images(name, samples=…).draw(seed)",
    "fits_network": "fits(target, model, images)",
}
"""What is written today for a name of before version 0.4."""
__all__ = [*_PLACES]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        if not name.startswith("_") and find_spec(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
        return _moved(name)
    module, attribute = _PLACES[name]
    value = globals()[name] = getattr(importlib.import_module(module), attribute)
    return value


def _moved(name: str) -> Any:
    """What had its name here before version 0.4, from the package that has it now."""
    from ntkscore.registry import points_of

    for point in () if name.startswith("_") else points_of("ntkscore.moved"):
        if point.name == name:
            now = f"from {point.module} import {name}"
            warnings.warn(f"{name} has moved; write {now}", DeprecationWarning, stacklevel=3)
            return point.load()
    hint = f"; write {_TODAY[name]}" if name in _TODAY else ""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(_PLACES)


_HERE = Path(__file__).resolve().parents[1]
_spec = find_spec("attacks")
_place = Path(next(iter((_spec and _spec.submodule_search_locations) or ["nowhere"]))).resolve()
if _place.parent != _HERE:
    raise ImportError(
        f"expected ntkscore's own package 'attacks' at {_HERE / 'attacks'}, got another one at "
        f"{_place}; take that folder off the import path or rename it"
    )
