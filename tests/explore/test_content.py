"""What a page of results holds, and what it refuses."""

import base64
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pages import own_table, residual_run, small_run
from tiny import invoke, refuses

from cells.drawing import LABELS
from cells.nasbench201 import EDGES, NASBench201
from ntkscore import Table, load_table, open_run
from ntkscore.analysis.frames import cost_table, score_table
from ntkscore.analysis.percentiles import SHIPPED
from ntkscore.analysis.ranking import LOG_RANKS
from ntkscore.analysis.score_names import default_sum
from ntkscore.explore import content_of, document, write_page
from ntkscore.explore.markup import LIMIT
from ntkscore.results import ResultSet

RUN = SHIPPED / "small-synthetic"


def decoded(page: str) -> tuple[dict, np.ndarray]:
    """The content of a page, and the values of its columns, a row for each."""
    (text,) = re.findall(r'id="content">(.*?)</script>', page, re.S)
    content = json.loads(text)
    planes = np.frombuffer(gzip.decompress(base64.b64decode(content["values"])), np.uint8)
    shape = len(content["columns"]), 4, len(content["names"])
    bytes_ = planes.reshape(shape).transpose(0, 2, 1).copy()
    return content, bytes_.view("<f4")[..., 0]


def test_a_page_holds_every_score_cost_count_and_accuracy(tmp_path: Path) -> None:
    rows = open_run(RUN).rows
    table = own_table(rows["cell"].unique())
    found = content_of([open_run(RUN)], table)
    content, values = decoded(document(found, "All of them"))
    scores = score_table(rows)
    names = [column["id"] for column in content["columns"]]
    assert names[: len(scores.columns)] == list(scores.columns)
    assert names[-2:] == ["cifar10 val_acc", "cifar10 val_pgd_8_acc"]
    for place, name in enumerate(scores.columns):
        np.testing.assert_array_equal(values[place], scores[name].to_numpy(np.float32))
    keys = [int(each[0]) for each in content["names"]]
    assert keys == list(scores.index) and content["graphs"]["alike"]
    assert [label for label, _ in content["graphs"]["operations"]] == ["none", *[*LABELS][1:]]
    first = [content["graphs"]["edges"][ord(c) - ord("0")] for c in content["graphs"]["of"][0][1:]]
    assert "".join(str(operation) for _, _, operation in first) == content["names"][0][1]
    assert [tuple(ends) for *ends, _ in first] == list(EDGES)
    params = cost_table(keys, NASBench201())["params"]
    np.testing.assert_array_equal(values[names.index("params")], params.to_numpy(np.float32))
    accuracy = table.accuracies("cifar10", "val_pgd_8_acc", keys)
    np.testing.assert_array_equal(values[-1], accuracy.astype(np.float32))


def test_predictions_stand_beside_what_was_measured() -> None:
    keys = open_run(RUN).rows["cell"].unique()
    means = pd.Series(np.arange(len(keys)) / len(keys), keys)
    predicted = pd.DataFrame({"mean": means, "low": means - 1, "high": means + 1})
    predicted["measured"] = means.where(means < 0.1)
    found = content_of([open_run(RUN)], own_table(keys), predicted=predicted)
    assert (found.x, found.y) == ("predicted mean", "cifar10 val_pgd_8_acc")
    by_id = {column.id: column.values for column in found.columns}
    assert by_id["predicted low"].equals(by_id["predicted mean"] - 1)
    assert f"predicted from {predicted['measured'].notna().sum()}" in found.about
    assert content_of([open_run(RUN)], predicted=predicted).y == "predicted mean"


def test_a_page_begins_with_the_default_sum_and_its_directions() -> None:
    found = content_of([open_run(RUN)])
    space = NASBench201()
    default = default_sum(space, space.counted(space.parse(0)))
    assert tuple(found.terms) == default.terms and found.x == LOG_RANKS
    assert [name for name, way in found.terms.items() if way < 0] == list(default.fewer)
    # Without a table the other axis is a score.
    assert found.y in [column.id for column in found.columns if column.score]


def test_several_radii_and_runs_lie_side_by_side(tmp_path: Path) -> None:
    first = small_run(tmp_path / "one", rhos=(4 / 255, 8 / 255), betas=(0.0, 0.5))
    second = small_run(tmp_path / "two", seed=3)
    found = content_of([open_run(first), open_run(second)])
    ids = [column.id for column in found.columns]
    assert "robust.frobenius, ρ = 4/255 (one)" in ids and "robust.frobenius (two)" in ids
    # What no attack has touched is there once.
    assert sum(name.startswith("clean.frobenius") for name in ids) == 2
    assert (found.x, found.x2) == ("robust.frobenius, ρ = 4/255 (one)", "robust.frobenius (two)")
    families = {column.family for column in found.columns if column.score}
    assert {"joint_clean.trace (one)", "joint_clean.trace (two)", ""} <= families
    assert all(name in ids for name in found.terms)


def test_runs_of_different_networks_leave_gaps(tmp_path: Path) -> None:
    few, more = small_run(tmp_path / "few", count=3), small_run(tmp_path / "more", count=8)
    content, values = decoded(document(content_of([open_run(few), open_run(more)]), "Both"))
    by_id = {column["id"]: row for column, row in zip(content["columns"], values, strict=True)}
    assert np.isfinite(by_id["robust.frobenius (more)"]).sum() == 8
    assert np.isfinite(by_id["robust.frobenius (few)"]).sum() == 3


def test_networks_of_another_space_have_no_graph(tmp_path: Path) -> None:
    content, values = decoded(document(content_of([open_run(residual_run(tmp_path / "r"))]), "R"))
    assert content["graphs"] is None and len(content["names"]) == values.shape[1] == 2


def test_a_network_that_failed_is_counted_and_has_no_value(tmp_path: Path) -> None:
    path = small_run(tmp_path / "run")
    rows = open_run(path).rows
    one = rows["cell"].iloc[0]
    broken = (rows["cell"] == one) & (rows["kernel"] == "clean") & (rows["score"] == "trace")
    rows.loc[broken, ["value", "status"]] = [np.nan, "not_finite"]
    run = ResultSet.open(path)
    again = ResultSet.create_or_resume(tmp_path / "again", run.configuration, run.identity)
    again.append(rows)
    found = content_of([open_run(again.directory)])
    assert "1 networks with a score that failed" in found.about
    (trace,) = (column.values for column in found.columns if column.id == "clean.trace")
    assert trace.isna().sum() == 1


def test_a_large_page_leaves_out_joint_kernels_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = content_of([open_run(small_run(tmp_path / "run", betas=(0.0, 0.5, 1.0)))])
    whole = document(found, "A")
    assert len(whole.encode()) < LIMIT
    monkeypatch.setattr("ntkscore.explore.markup.LIMIT", len(whole.encode()) - 1)
    content, _ = decoded(document(found, "A"))
    betas = {column["beta"] for column in content["columns"] if column.get("family")}
    assert betas == {0.5} and "Joint kernels are those of β = 0.5" in content["about"]


@pytest.mark.thorough
def test_two_pages_of_one_run_are_equal(tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_page([open_run(RUN)], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    text = (tmp_path / "a.html").read_text(encoding="utf-8")
    # Nothing is asked for: no source, sheet or picture outside the page.
    own = text.replace(
        (Path(__file__).parents[2] / "ntkscore/explore/page/echarts.min.js").read_text(), ""
    )
    assert not re.search(r"""(src|href)\s*=\s*["'](?!data:)""", own) and "http" not in own.replace(
        "http://www.w3.org/2000/svg", ""
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "expected a results directory with a run.json, but there is no folder /"),
        (
            [str(RUN), "--table", "TABLE"],
            "has results for, got none of 5,234",
        ),
        ([str(RUN), "RESIDUAL"], "expected runs of one space, got nasbench201 and residual"),
    ],
)
def test_what_cannot_be_shown_is_refused_in_a_sentence(
    arguments: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "table.csv").write_text("network,clean\nvgg,0.5\n")
    places = {"TABLE": str(tmp_path / "table.csv"), "RESIDUAL": str(tmp_path / "r")}
    residual_run(tmp_path / "r")
    given = [places.get(each, each) for each in arguments]
    more = ["--dataset", "cifar10"] if "--table" in given else []
    out = tmp_path / "page.html"
    result = invoke("explore", *given, *more, "--out", out, code=2)
    assert not out.exists()
    assert message in " ".join(result.stderr.split())


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    with refuses("page.txt"):
        write_page([open_run(RUN)], tmp_path / "page.txt")
    (tmp_path / "file").write_text("")
    with refuses(tmp_path / "file", expected=tmp_path / "file"):
        write_page([open_run(RUN)], tmp_path / "file" / "page.html")
    out = tmp_path / "deep" / "page.html"
    result = invoke("explore", RUN, "--out", out, "--title", "<b>&")
    assert "MB; open it in a browser" in result.stderr
    assert "<title>&lt;b&gt;&amp;</title>" in out.read_text(encoding="utf-8")
    assert [each.name for each in out.parent.iterdir()] == ["page.html"]


@pytest.mark.thorough
def test_the_table_of_the_benchmark_is_found(data_dir: Path) -> None:
    found = content_of([open_run(RUN)], load_table(data_dir / "nas-robbench-201"))
    assert found.y == "cifar10 val_pgd_8_acc"
    groups = {column.group for column in found.columns if column.group.startswith("Accuracy")}
    assert groups == {"Accuracy on CIFAR-10", "Accuracy on CIFAR-100", "Accuracy on ImageNet16-120"}


def test_names_of_folders_that_are_alike_have_their_parents(tmp_path: Path) -> None:
    runs = [open_run(small_run(tmp_path / parent / "run")) for parent in ("a", "b")]
    groups = {column.group for column in content_of(runs).columns if column.score}
    assert groups == {"Scores of a/run", "Scores of b/run"}
    twice = {column.group for column in content_of([runs[0], runs[0]]).columns if column.score}
    assert twice == {"Scores of run 1", "Scores of run 2"}


def test_a_table_that_lacks_some_networks_leaves_gaps() -> None:
    keys = open_run(RUN).rows["cell"].unique()[:50]
    frame = pd.DataFrame({"clean": np.linspace(0.1, 0.9, 50)}, index=keys)
    found = content_of([open_run(RUN)], Table.from_frame(frame, dataset="cifar10"))
    assert found.columns[-1].values.notna().sum() == 50
    assert "accuracies of 50 networks" in found.about
