"""The documentation's examples run, its links lead somewhere, and its commands exist."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest
import yaml
from tiny import invoke
from typer.main import get_command

from experiments.data import Data
from ntkscore.cli import app_for
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.kernels.joint import KERNELS
from ntkscore.measures import MEASURES
from ntkscore.measures.kernel import KERNEL
from ntkscore.measures.registry import NETWORK, measures_of

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
NETWORKS = ROOT / "docs" / "networks.md"
SCRIPTS = sorted((ROOT / "docs" / "clusters").iterdir())
FROZEN = ROOT / "experiments" / "frozen" / "README.md"
PAGES = sorted([README, ROOT / "CONTRIBUTING.md", FROZEN, *(ROOT / "docs").glob("*.[mi]*[db]")])


def blocks(page: Path, language: str = "python") -> list[tuple[str, str]]:
    """(what stands behind the language, content) of every code block."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"```{language}([^\n]*)\n(.*?)```", text, re.DOTALL)


def complete(rows: pd.DataFrame) -> None:
    """Every kernel has every score, and none failed that the network has what it needs for."""
    assert set(rows["kernel"]) == {*KERNELS, NETWORK}
    kernels = rows["score"].isin(measures_of(KERNEL))
    assert (rows.loc[kernels, "status"] == "ok").all()
    assert set(rows["status"]) <= {"ok", "not_given"}
    assert {"frobenius", "lambda_min", "label_energy", "sigma_min", "loss"} <= set(rows["score"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that Python imports from."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.slow
def test_the_readmes_examples_run(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for head, code in blocks(README):
        if "needs=" not in head:  # tests/test_bridges.py runs it
            exec(code, names)
    complete(names["rows"])
    assert "lambda_min_normalized" in capsys.readouterr().out


def printed_in_the_readme() -> Iterator[tuple[str, list[str]]]:
    """Commands of the README with the lines that stand below as what they print."""
    text = README.read_text(encoding="utf-8")
    for command, lines in re.findall(
        r"```sh\n([^\n`]*)\n```\n\n```text\n(.*?)```", text, re.DOTALL
    ):
        yield command, lines.splitlines()


@pytest.mark.slow
def test_the_readmes_output_is_what_its_commands_print() -> None:
    """A line of the README is the beginning of one that is printed, up to rounding."""
    number = r"\d+(?:\.\d+)?(?:e\+\d+)?"

    def values(line: str) -> list[float]:
        return [float(each) for each in re.findall(number, line)]

    def begins(full: str, line: str) -> bool:
        same = re.sub(number, "#", full).startswith(re.sub(number, "#", line))
        return same and values(line) == pytest.approx(values(full)[: len(values(line))], rel=0.02)

    shown = dict(printed_in_the_readme())
    assert len(shown) == 2
    for command, lines in shown.items():
        printed = invoke(*command.split()[1:]).stdout.splitlines()
        assert [line for line in lines if not any(begins(full, line) for full in printed)] == []


def test_the_theorys_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    ((_, code),) = blocks(ROOT / "docs" / "theory.md")
    names: dict[str, Any] = {}
    exec(code, names)
    term, _ = capsys.readouterr().out.splitlines()
    assert 0 < float(term) < 3
    assert max(names["trained"].progressive) < 0.2


@pytest.mark.slow
def test_the_recipes_study_runs(data_dir: Path) -> None:
    ((_, code),) = blocks(ROOT / "CONTRIBUTING.md")
    names: dict[str, Any] = {}
    exec(code, names)
    study = names["STUDY"].at(every=50, dataset=("cifar10",))
    (claim,) = study.claims(study.frame(Data(data_dir)))
    assert (claim.verdict, claim.ours) == ("holds", True) and len(study.settings) == 3


@pytest.mark.slow
def test_the_how_tos_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setitem(ATTACKS, "strong", ATTACKS["pgd"])  # both go with the test
    for name in ("log_trace", "margin"):
        monkeypatch.setitem(MEASURES, name, MEASURES["trace"])
        monkeypatch.delitem(MEASURES, name)
    names: dict[str, Any] = {}
    for _, code in blocks(ROOT / "docs" / "howto.md"):
        with monkeypatch.context() as without:
            if "optuna" in code:  # whose networks other tests compile, without this measure
                without.delitem(MEASURES, "margin")
            exec(code, names)
    complete(names["sheet"])
    assert set(names["sheet"]["cell"]) == {2581, 1462}
    printed = capsys.readouterr().out.splitlines()
    assert "strong" in printed and printed[-4].isdigit()
    assert 0 < float(printed[-3]) < 1 and printed[-1] in names["values"].index
    best = names["study"].best_trials
    assert best and str(best[0].params) in printed[-2]
    assert all(0 < score < 1e6 and params > 7e4 for score, params in (t.values for t in best))
    assert len(names["values"]) == 4 and (folder / "runs" / "driven").is_dir()
    for name in ("log_trace", "margin"):
        MEASURES.pop(name, None)


def test_the_page_of_kernels_runs(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for _, code in blocks(ROOT / "docs" / "kernels.md"):
        exec(code, names)
    shapes = {"full": (9, 40, 3, 3), "classes": (3, 9, 40), "norms": (40,), "errors": (40, 3)}
    assert {name: names[name].shape for name in shapes} == shapes
    np.testing.assert_allclose(sum(names["by_leaf"].values()), names["square"], rtol=1e-5)
    np.testing.assert_allclose(names["estimate"], names["cross"], atol=0.1 * names["cross"].max())
    assert "(40,)" in capsys.readouterr().out
    mask = names["mask"]
    kept = jax.tree.map(lambda a, m: np.where(m, a, 0), names["params"], mask)
    slopes = jax.jacrev(lambda w: names["apply"](w, names["train"]).sum(1))(kept)
    rows = [np.asarray(slopes[name][:, mask[name]]) for name in mask]
    assert [each.shape[1] for each in rows] == [48 * 64 / 2, 64 * 3 / 2]
    np.testing.assert_allclose(names["of_kept"], sum(r @ r.T for r in rows), rtol=1e-4)


@pytest.mark.slow
def test_digits_are_named_by_regression(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    monkeypatch.setenv("NTKSCORE_DATA", str(data_dir))
    found = runpy.run_path(str(ROOT / "docs" / "mnist.py"))["main"](200, 512)
    assert found["scikit-learn"] == found["Cholesky"] > 0.8
    assert found["conjugate gradients"] == pytest.approx(found["Cholesky"], abs=0.002)
    assert found["features"] > 0.7


@pytest.mark.slow
def test_the_page_of_threads_runs() -> None:
    """Without neural-tangents, whose side runs in `make oracles`."""
    names: dict[str, Any] = {}
    for head, code in blocks(ROOT / "docs" / "neural-tangents.md"):
        if "theirs=" not in head:
            exec(code, names)
    shapes = {"189": (64, 32, 10, 10), "68": (640, 640), "120": (), "30": (64, 32)}
    assert {n: names[f"ours_{n}"].shape for n in shapes} == shapes
    assert np.trace(names["ours_68"]) / 10 == pytest.approx(float(names["ours_120"]), rel=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:equinox")
def test_a_network_of_every_kind_and_a_space_of_ones_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(MEASURES, "log_volume", MEASURES["trace"])
    monkeypatch.delitem(MEASURES, "log_volume")
    names: dict[str, Any] = {}
    scored = 0
    for head, code in blocks(NETWORKS):
        if "needs=" in head:
            continue  # tests/test_bridges.py runs it
        if "file=" in head:
            (folder / head.partition("file=")[2].strip()).write_text(code)
            assert len(code.splitlines()) <= 60
            continue
        rows = names.get("rows")
        exec(code, names)
        if names.get("rows") is not rows:
            complete(names["rows"])
            scored += 1
    assert scored == 8
    assert list(names["ranked"]["rank"]) == [1, 2, 3, 4, 5, 6, 7]
    (command,) = (line for _, code in blocks(NETWORKS, "sh") for line in code.splitlines())
    assert "rgb" in invoke(*command.split()[1:]).stdout
    MEASURES.pop("log_volume", None)
    sys.modules.pop("stripes", None)


def test_the_notebook_holds_no_output() -> None:
    """`make site` runs it; what it prints of the table belongs to the table."""
    cells = json.loads((ROOT / "docs" / "first-steps.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 8
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub and the site make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Links in the text, and their definitions below it."""
    link = r"(?:\]\(|^\[[^]]+\]: )(?!https?:)([^)#\s]*)(?:#([^)\s]+))?"
    for target, anchor in re.findall(link, page.read_text(encoding="utf-8"), re.MULTILINE):
        there = (page.parent / target).resolve() if target else page
        if there.parent == FROZEN.parent and not any(map(Path.is_dir, FROZEN.parent.iterdir())):
            continue  # No study has been frozen yet.
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_modules_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:cells|attacks|ntkscore|experiments|tests|docs)/[\w/.-]+)`", text))
    for path in named:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_and_options_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"^\.?\S*ntkscore (\w+) (.*)$", text, re.MULTILINE):
        name, rest = line
        if ".py" in rest:  # The file, and its options, are on the page.
            continue
        command = get_command(app_for(rest.split())).commands[name]  # type: ignore[attr-defined]
        known = {flag for parameter in command.params for flag in parameter.opts}
        assert set(re.findall(r"--[a-z][a-z-]+", rest)) <= {*known, "--help"}, line


def script(path: Path) -> str:
    """What a shell runs on the cluster."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        (text,) = pod(path)["args"]
    return text


def pod(path: Path) -> dict[str, Any]:
    """The container of a Dask job that runs the command."""
    job = yaml.safe_load(path.read_text(encoding="utf-8"))
    (container,) = job["spec"]["job"]["spec"]["containers"]
    return container


def test_a_job_of_kubernetes_has_the_fields_that_it_needs() -> None:
    (path,) = (path for path in SCRIPTS if path.suffix == ".yaml")
    job = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert (job["apiVersion"], job["kind"]) == ("kubernetes.dask.org/v1", "DaskJob")
    cluster = job["spec"]["cluster"]["spec"]
    (worker,) = cluster["worker"]["spec"]["containers"]
    (scheduler,) = cluster["scheduler"]["spec"]["containers"]
    # Rows are the same where the packages are.
    assert pod(path)["image"] == worker["image"] == scheduler["image"]
    # The service finds the scheduler by the job's name, and its ports by theirs.
    service = cluster["scheduler"]["service"]
    assert service["selector"]["dask.org/cluster-name"] == job["metadata"]["name"]
    named = {port["name"]: port["containerPort"] for port in scheduler["ports"]}
    assert {port["targetPort"]: port["port"] for port in service["ports"]} == named


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_valid_and_shown(path: Path) -> None:
    subprocess.run(["bash", "-n"], input=script(path), text=True, check=True)
    page = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
    assert f"{{literalinclude}} clusters/{path.name}\n" in page
    commands = re.findall(r"\bntkscore (\w+ .*)", script(path).replace("\\\n", " "))
    assert commands
    for line in commands:
        # What a variable holds is a number, or a place, which any text is.
        line = re.sub(r"\$\w+", "0", line.strip())
        # The script hands the whole command on in quotes, of which this one is the last.
        inside = any(line.count(quote) % 2 for quote in "'\"")
        name, *words = shlex.split(line[:-1] if inside else line)
        command = get_command(app_for(words)).commands[name]  # type: ignore[attr-defined]
        command.make_context(name, words)


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) < 150
