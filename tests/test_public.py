"""The names that `import ntkscore` offers: each is documented, with an example that runs."""

import inspect

import pytest

import ntkscore

NAMES = sorted(ntkscore.__all__)


def test_the_public_names_are_all_that_is_shown() -> None:
    assert dir(ntkscore) == NAMES
    assert {"score", "open_run", "Model", "Config", "load_images", "train", "Space"} <= set(NAMES)


def test_another_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="scores"):
        ntkscore.scores  # noqa: B018


def test_a_name_of_before_says_what_to_write() -> None:
    with pytest.raises(AttributeError, match=r"write score\(networks, images, out=…\)\.rank\(\)"):
        ntkscore.rank  # noqa: B018


@pytest.mark.parametrize(
    ("name", "package"),
    [("Cell", "cells"), ("NASBench201", "cells"), ("Residual", "cells"), ("pgd", "attacks")],
)
def test_names_that_moved_are_found_and_say_where_they_are(name: str, package: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"write from {package}.* import {name}"):
        assert getattr(ntkscore, name).__module__.startswith(package)


def test_a_module_that_the_docs_name_need_not_be_imported_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("explore", "spaces", "training"):
        monkeypatch.delattr(ntkscore, name, raising=False)
    assert ntkscore.explore.write_page.__module__ == "ntkscore.explore"
    assert "residual" in ntkscore.spaces.SPACES and ntkscore.training.__path__


@pytest.mark.parametrize("name", NAMES)
def test_every_name_has_an_example(name: str) -> None:
    """`tests/test_examples.py` runs it."""
    value = getattr(ntkscore, name)
    text = inspect.getdoc(value) or ""
    if inspect.isclass(value):
        text += "".join(inspect.getdoc(member) or "" for _, member in inspect.getmembers(value))
    assert ">>> " in text, name
