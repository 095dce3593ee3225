"""The runtime checker of shapes in annotations, while the tests run and only then."""

import re
from pathlib import Path

import jaxtyping
from beartype import BeartypeConf, beartype

FOLDERS = ("ntkscore", "cells", "attacks", "experiments/theory")
SHAPE = re.compile(r"\b(Bool|Float|Int|Shaped|UInt)\[")
# An int is a float to every reader, as to a type checker.
check = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check_shapes() -> None:
    """Check the calls of every module with shapes that is imported from now on.

    In other modules a type checker sees what there is to see, and checking each call of each of
    their functions would double the time of the tests.
    """
    root = Path(__file__).parents[1]
    files = [file for folder in FOLDERS for file in sorted((root / folder).rglob("[!_]*.py"))]
    names = [
        ".".join(file.relative_to(root).with_suffix("").parts)
        for file in files
        if SHAPE.search(file.read_text(encoding="utf-8"))
    ]
    jaxtyping.install_import_hook(names, "typechecker.check")
