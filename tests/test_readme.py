"""What the README shows runs, and what it mentions exists."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from ntkscore.cli import app

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_library_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(example, {})
    printed = capsys.readouterr().out
    assert "lambda_min" in printed and "ok" in printed


def test_the_commands_exist() -> None:
    names = set(re.findall(r"`?ntkscore ([a-z]+) ", README))
    assert names >= {"score", "rank", "correlate", "lookup", "verify", "fetch"}
    for name in sorted(names):
        shown = CliRunner().invoke(app, [name, "--help"])
        assert shown.exit_code == 0, name


def test_the_links_lead_somewhere() -> None:
    folder = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("http") or (folder / target).exists(), target


def test_it_is_short() -> None:
    assert len(README.splitlines()) < 150
