"""Pictures that commands draw of what they print."""

import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from tiny import invoke, refuses

from cells.darts import Darts, Genotype, Genotypes
from cells.nasbench201.cell import Cell
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore import open_run
from ntkscore.analysis.frames import default_of, network_table
from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.analysis.ranking import LOG_RANKS, Ranking
from ntkscore.explore.graphs import Graph, draw
from ntkscore.explore.pictures import agreement_picture, check_picture, ranking_picture
from ntkscore.results import ResultSet

STARTS = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("ending", STARTS)
def test_a_ranking_is_drawn_beside_a_cost_in_any_of_three_forms(
    ending: str, tmp_path: Path
) -> None:
    rows = ResultSet.open(SHIPPED / "small-synthetic").read()
    rows, space = rows[rows["cell"] < 1000], NASBench201()
    frame = Ranking.of(network_table(rows, space), default_of(rows, space), space).frame
    path = tmp_path / f"picture{ending}"
    ranking_picture(frame, LOG_RANKS, "params", ["cell", "digits"], path)
    first = path.read_bytes()
    assert first.startswith(STARTS[ending]) and len(first) > 5000
    ranking_picture(frame, LOG_RANKS, "params", ["cell", "digits"], path)
    assert path.read_bytes() == first
    if ending == ".svg":
        text = first.decode()
        missing = int(frame[LOG_RANKS].isna().sum())
        assert f"{len(frame) - missing:,} networks" in text and frame["digits"].iloc[0] in text


def labels_of(graphs: tuple[Graph, ...]) -> list[list[Text]]:
    """Labels of each of some graphs, drawn in its part of a ranking's picture."""
    figure = Figure(figsize=(3.2, 2.1 * len(graphs)))
    axes = [figure.add_subplot(len(graphs), 1, i + 1) for i in range(len(graphs))]
    for axis, graph in zip(axes, graphs, strict=True):
        draw(axis, graph)
    FigureCanvasAgg(figure).draw()
    names = {edge.label for graph in graphs for edge in graph.edges if edge.label}
    return [[text for text in axis.texts if text.get_text() in names] for axis in axes]


def test_labels_of_a_graph_do_not_overlap() -> None:
    rng, every = np.random.default_rng(0), Genotypes()
    drawn = [every[int(place)] for place in rng.integers(len(every), size=6)]
    published = Darts().architectures("published")
    cells = [NASBench201().graphs(Cell.parse(name)) for name in ("323133", "333333")]
    for graphs in (*cells, *map(Darts().graphs, (*published, *drawn))):
        for labels in labels_of(graphs):
            assert len(labels) in (6, 8)
            boxes = [label.get_window_extent() for label in labels]
            overlapping = [(a, b) for a, b in itertools.combinations(boxes, 2) if a.overlaps(b)]
            assert not overlapping, graphs


def test_an_edge_without_operation_has_no_label_and_other_networks_no_graph() -> None:
    (graph,) = NASBench201().graphs(Cell.parse("023133"))
    assert graph.edges[0] == (0, 1, "", "#9aa0a6") and graph.edges[1].label == "conv 1×1"
    normal, reduction = Darts().graphs(Genotype.parse("LRNAS"))
    assert sum(not edge.label for edge in (*normal.edges, *reduction.edges)) == 2
    assert Residual().graphs((0, 1)) == ()


def test_an_agreement_shows_costs_whatever_they_are_worth(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    values = np.append(rng.uniform(0.2, 0.9, 60), [0.01, np.nan])
    frame = pd.DataFrame(
        {
            "score": [*(f"clean.s{i}" for i in range(60)), "params", "clean.broken"],
            "spearman": values,
            "spearman_low": values - 0.1,
            "spearman_high": values + 0.1,
            "status": ["ok"] * 61 + ["constant"],
        }
    )
    agreement_picture(frame, ["params"], "accuracy", tmp_path / "a.svg")
    text = (tmp_path / "a.svg").read_text()
    assert ">params<" in text.replace("<!-- params -->", ">params<") and "broken" not in text
    best = frame.loc[values[:60].argmax(), "score"]
    worst = frame.loc[values[:60].argmin(), "score"]
    assert f"<!-- {best} -->" in text and f"<!-- {worst} -->" not in text


@pytest.mark.parametrize(
    ("name", "got", "expected", "remedy"),
    [("a.gif", "a.gif", ".png", "--plot"), ("none/a.png", "none", ("none", "--plot"), ())],
)
def test_files_that_cannot_be_drawn_are_refused_first(
    name: str, got: str, expected: object, remedy: object, tmp_path: Path
) -> None:
    with refuses(got, expected=expected, remedy=remedy):
        check_picture(tmp_path / name)
    invoke("search", "--out", tmp_path / "run", "--plot", tmp_path / name, code=2)
    assert not (tmp_path / "run").exists()


def test_correlate_draws_the_recorded_scores(tmp_path: Path) -> None:
    cells = open_run("recorded").rows["cell"].unique()[:40]
    costs = [NASBench201().costs(NASBench201().parse(cell))["params"] for cell in cells]
    table = pd.DataFrame({"cell": cells, "clean": np.array(costs) / 2e6})
    table.to_csv(tmp_path / "mine.csv", index=False)
    given = ["correlate", "recorded", "--table", str(tmp_path / "mine.csv"), "--metric", "clean"]
    more = ["--resamples", "20", "--format", "csv", "--plot", str(tmp_path / "a.svg")]
    result = invoke(*given, *more)
    assert "clean.stability" in result.stdout and "joint_robust@0.5.frobenius" in result.stdout
    assert "drawn in" in result.stderr
    assert "Spearman with clean on cifar10" in (tmp_path / "a.svg").read_text()
