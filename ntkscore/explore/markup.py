"""The page as one text: its content, its script and the plotting library, without other files."""

import base64
import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from html import escape
from importlib.resources import files

import numpy as np

from cells.darts.genotype import TARGETS
from cells.nasbench201.cell import AVG_POOL, EDGES, NONE
from ntkscore.analysis.ranking import LOG_RANKS
from ntkscore.explore import graphs
from ntkscore.explore.content import Column, Content

LIMIT = 6_000_000
"""Bytes that a page is to stay below."""
LIBRARY = "echarts.min.js"
MAIN_BETA = 0.5
"""The β whose joint kernels stay where the others would make the page too large."""


def document(content: Content, title: str) -> str:
    """Return HTML that shows a content, opened from disk, and loads nothing from a network.

    Where it would be larger than 6 MB, joint kernels of all β but one are left out, and it says so.

    Args:
        content: of the page.
        title: its heading.

    Example:
        >>> import pandas as pd
        >>> from ntkscore.explore.content import Column
        >>> values = pd.Series([0.1, 0.2])
        >>> columns = [Column("clean.trace", "Scores", 1, values)]
        >>> names, shown = [["one"], ["two"]], "clean.trace"
        >>> page = document(Content("Two.", names, columns, {}, shown, shown, "", []), "A title")
        >>> page[:15], "<title>A title</title>" in page
        ('<!doctype html>', True)
    """
    page = _filled(content, title)
    columns = [c for c in content.columns if not c.score or c.score.beta in (None, MAIN_BETA)]
    if len(page.encode()) <= LIMIT or len(columns) == len(content.columns):
        return page
    about = f"{content.about} Joint kernels are those of β = {MAIN_BETA:g}; others are in the run."
    return _filled(replace(content, columns=columns, about=about), title)


def _filled(content: Content, title: str) -> str:
    folder = files("ntkscore.explore") / "page"
    read = lambda name: (folder / name).read_text(encoding="utf-8")  # noqa: E731
    parts = {
        "title": escape(title),
        "style": read("page.css"),
        "library": read(LIBRARY),
        # A script ends at the first "</script", also inside a string.
        "content": json.dumps(_encoded(content), ensure_ascii=False).replace("<", "\\u003c"),
        "script": read("statistics.js") + read("view.js"),
    }
    # In one pass, so that nothing is put into what was put in before.
    return re.sub(r"\{\{(\w+)\}\}", lambda name: parts[name[1]], read("page.html"))


def _encoded(content: Content) -> dict[str, object]:
    columns = []
    for column in content.columns:
        facts: dict[str, object] = {
            "id": column.id,
            "group": column.group,
            "direction": column.direction,
        }
        if column.score and column.family:
            facts |= {"family": column.family, "beta": column.score.beta, "rho": column.rho}
        columns.append(facts)
    graph = {
        "digits": content.digits,
        "edges": EDGES,
        "nodes": graphs.NODES,
        "operations": graphs.OPERATIONS,
        "none": NONE,
        "pool": AVG_POOL,
    }
    genotypes = {
        "digits": content.genotypes,
        "nodes": graphs.GENOTYPE_NODES,
        "operations": graphs.GENOTYPE_OPERATIONS,
        "targets": TARGETS,
        "kinds": graphs.KINDS,
    }
    return {
        "about": content.about,
        "names": content.names,
        "columns": columns,
        "values": _packed(content.columns),
        "sum": LOG_RANKS,
        "colours": graphs.COLOURS,
        "start": {
            "x": content.x,
            "y": content.y,
            "x2": content.x2,
            "colour": "params" if any(c.id == "params" for c in content.columns) else content.y,
            "terms": list(content.terms.items()),
        },
        "graph": graph if content.digits else None,
        "genotypes": genotypes if content.genotypes else None,
    }


def _packed(columns: Sequence[Column]) -> str:
    """All columns' float32 values: bytes of one place together, gzip, base64."""
    values = np.stack([column.values.to_numpy(np.float32) for column in columns])
    planes = values.astype("<f4").view(np.uint8).reshape(*values.shape, 4).transpose(0, 2, 1)
    # A time stamp would make two pages of one content differ.
    return base64.b64encode(gzip.compress(planes.tobytes(), mtime=0)).decode()
