"""The names that `import ntkscore` offers: each is documented, with an example that runs."""

import inspect

import pytest

import ntkscore

NAMES = sorted(ntkscore.__all__)


def test_a_person_needs_no_deep_imports() -> None:
    assert {
        *("score", "score_network", "rank", "search", "percentiles"),
        *("correlate", "lookup", "open_results", "recorded_scores", "rank_results"),
        *("ntk", "stack", "joint_kernel", "measure", "add_score", "anatomy"),
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
        ),
        "InputError",
    } == set(NAMES)
    assert dir(ntkscore) == NAMES


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="scores"):
        ntkscore.scores  # noqa: B018


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
