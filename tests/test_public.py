"""The names that `import ntkscore` offers: each is documented, with an example that runs."""

import inspect

import pytest

import ntkscore

NAMES = sorted(
    name
    for name, value in vars(ntkscore).items()
    if not name.startswith("_") and not inspect.ismodule(value)
)


def test_a_person_needs_no_deep_imports() -> None:
    assert {
        *("score", "score_network", "rank", "correlate", "lookup", "open_results"),
        *("ntk", "stack", "joint_kernel", "measure", "add_score"),
        *("fgsm", "pgd", "twice"),
        *("load_images", "draw_images", "load_table", "fetch", "Table"),
        *("agreement", "difference"),
        *("Cell", "NASBench201", "Residual", "Space", "Task", "option", "Model", "Config"),
        "InputError",
    } == set(NAMES)


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
