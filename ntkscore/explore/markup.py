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

from ntkscore.analysis.ranking import LOG_RANKS
from ntkscore.explore.content import Column, Content
from ntkscore.explore.graphs import COLOURS, Graph

LIMIT = 6_000_000
"""Bytes that a page is to stay below."""
LIBRARY = "echarts.min.js"
MAIN_BETA = 0.5
"""The β whose joint kernels stay where the others would make the page too large."""


def document(content: Content, title: str) -> str:
    """Return HTML that shows a content, opened from disk, and loads nothing from a network.

    Where it would be larger than 6 MB, joint kernels of all β but one are left out, and it says so.

    Example:
        >>> import pandas as pd
        >>> from ntkscore.explore.content import Column
        >>> values = pd.Series([0.1, 0.2])
        >>> columns = [Column("clean.trace", "Scores", 1, values)]
        >>> names, shown = [["one"], ["two"]], "clean.trace"
        >>> page = document(Content("Two.", names, columns, {}, shown, shown, ""), "A title")
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
    return {
        "about": content.about,
        "names": content.names,
        "columns": columns,
        "values": _packed(content.columns),
        "sum": LOG_RANKS,
        "start": {
            "x": content.x,
            "y": content.y,
            "x2": content.x2,
            "colour": "params" if any(c.id == "params" for c in content.columns) else content.y,
            "terms": list(content.terms.items()),
        },
        "graphs": _drawings(content.graphs) if any(content.graphs) else None,
    }


def _drawings(graphs: Sequence[tuple[Graph, ...]]) -> dict[str, object]:
    """Drawings of all networks: their different parts once, and which of them each network has.

    Of each network there is a word for each graph: a letter for its name and nodes, and one for
    each of its edges, counted from "0".
    """
    every = [graph for drawn in graphs for graph in drawn]
    frames = list(dict.fromkeys((graph.title, graph.nodes) for graph in every))
    edges = list(dict.fromkeys(edge for graph in every for edge in graph.edges))
    rank = {colour: place for place, colour in enumerate(COLOURS)}
    operations = sorted(
        {(edge.label, edge.colour) for edge in edges},
        key=lambda named: (named[0] != "", rank.get(named[1], len(rank)), named),
    )
    frame_at, edge_at, operation_at = (
        {value: place for place, value in enumerate(values)}
        for values in (frames, edges, operations)
    )

    def word(graph: Graph) -> str:
        places = frame_at[graph.title, graph.nodes], *(edge_at[edge] for edge in graph.edges)
        return "".join(chr(ord("0") + place) for place in places)

    wirings = {tuple((g.nodes, *(e[:2] for e in g.edges)) for g in drawn) for drawn in graphs}
    return {
        "frames": frames,
        "edges": [(e.source, e.target, operation_at[e.label, e.colour]) for e in edges],
        "operations": [(label or "none", colour) for label, colour in operations],
        "of": [" ".join(map(word, drawn)) for drawn in graphs],
        # Where all have one graph that differs in its operations alone, these may be asked for.
        "alike": len(wirings) == 1 and len(graphs[0]) == 1,
    }


def _packed(columns: Sequence[Column]) -> str:
    """All columns' float32 values: bytes of one place together, gzip, base64."""
    values = np.stack([column.values.to_numpy(np.float32) for column in columns])
    planes = values.astype("<f4").view(np.uint8).reshape(*values.shape, 4).transpose(0, 2, 1)
    # A time stamp would make two pages of one content differ.
    return base64.b64encode(gzip.compress(planes.tobytes(), mtime=0)).decode()
