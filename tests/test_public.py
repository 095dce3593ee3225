"""The names that `import ntkscore` offers: each is documented, with an example that runs."""

import ast
import inspect
from pathlib import Path

import pytest

import ntkscore

NAMES = sorted(ntkscore.__all__)


def test_a_person_needs_no_deep_imports() -> None:
    assert {
        *("score", "score_network", "rank", "search", "percentiles"),
        *("correlate", "lookup", "open_results", "recorded_scores", "rank_results"),
        *("ntk", "stack", "joint_kernel", "measure", "add_measure", "add_score", "anatomy"),
        *("fgsm", "pgd", "twice"),
        *("load_images", "draw_images", "load_table", "fetch", "Table"),
        *("agreement", "difference"),
        *(
            "Cell",
            "NASBench201",
            "Residual",
            "Space",
            "Task",
            "option",
            "Model",
            "from_torch",
            "Activations",
            "Config",
            "Job",
        ),
        "InputError",
    } == set(NAMES)
    assert set(NAMES) <= set(dir(ntkscore))


def test_type_checkers_read_the_places_from_which_names_are_imported() -> None:
    tree = ast.parse(Path(ntkscore.__file__).read_text())
    imported = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    places = {a.asname: f"{node.module}.{a.name}" for node in imported for a in node.names}
    del places[None]  # what the file itself works with
    assert places == ntkscore.PLACES


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match=r"^module 'ntkscore' has no attribute 'scores'$"):
        ntkscore.scores  # noqa: B018


def test_the_version_is_a_version() -> None:
    assert ntkscore.__version__.count(".") == 2


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example(name: str) -> None:
    """`tests/test_examples.py` runs it."""
    value = getattr(ntkscore, name)
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        text += "".join(inspect.getdoc(member) or "" for _, member in inspect.getmembers(value))
    assert ">>> " in text, name


@pytest.mark.parametrize("name", NAMES)
def test_every_summary_stands_alone(name: str) -> None:
    summary = (inspect.getdoc(getattr(ntkscore, name)) or "").splitlines()[0]
    assert summary.endswith(".") or summary.endswith(":"), summary
    assert summary.split()[0] not in ("Of", "What", "Which", "Whether"), summary
