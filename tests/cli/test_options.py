"""Every choice is declared once, as a field; the commands' options follow."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from tiny import invoke, refused
from typer.main import get_command
from typer.testing import CliRunner

from cells.nasbench201.space import NASBench201
from cells.residual import Residual, ResidualConvolutional
from cells.space import Space, option, options
from ntkscore.api.runs import space_in
from ntkscore.cli import app
from ntkscore.cli import options as cli_options
from ntkscore.cli.options import MAKERS, command, flag_of
from ntkscore.config import Config
from ntkscore.results import ResultSet
from ntkscore.spaces import SPACES, space_class

OWN = Path(__file__).parents[1] / "run" / "own_space.py"
GROUP = get_command(app).commands  # type: ignore[attr-defined]
COMMANDS = {name: command for name, command in GROUP.items() if not hasattr(command, "commands")}
COMMANDS |= {
    f"{group} {name}": command
    for group in GROUP
    for name, command in getattr(GROUP[group], "commands", {}).items()
}


def flags_of(name: str) -> set[str]:
    """All options of a command, without the leading dashes."""
    return {flag.lstrip("-") for parameter in COMMANDS[name].params for flag in parameter.opts}


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        *((n, c) for n in ("score", "rank") for c in (Config, NASBench201, Residual)),
        ("rank", ResidualConvolutional),
    ],
)
def test_every_field_is_an_option(name: str, cls: type) -> None:
    assert options(cls)
    for field in options(cls):
        assert flag_of(field) in flags_of(name)


def test_every_named_space_is_in_the_test_above() -> None:
    assert set(SPACES.values()) == {NASBench201, Residual, ResidualConvolutional}


def test_the_options_make_the_values_that_their_texts_say() -> None:
    given = {parameter.name: parameter.default for parameter in MAKERS[Config][0]()}
    assert MAKERS[Config][1](dict(given)) == Config()
    given |= {"rhos": ["3/255", "0.5"], "attack": "pgd", "steps": 3, "step_size": "2/255"}
    made = MAKERS[Config][1](given | {"norm": "l2", "betas": ["1/4"], "balanced": True})
    assert made == Config(
        rhos=(3 / 255, 0.5),
        attack="pgd",
        steps=3,
        step_size=2 / 255,
        norm="l2",
        betas=(0.25,),
        balanced=True,
    )
    given = {parameter.name: parameter.default for parameter in MAKERS[Space][0]()}
    assert MAKERS[Space][1](dict(given)) == NASBench201()
    assert MAKERS[Space][1](given | {"space": "residual", "space_width": 9}) == Residual(width=9)


@dataclass(frozen=True)
class WithTemperature(Config):
    temperature: float = option(1.0, "Temperature of the logits.")


@dataclass(frozen=True, kw_only=True)
class Wider(Residual):
    name: ClassVar[str] = "wider"

    factor: int = option(2, "Factor of the width.")


def test_a_new_field_is_an_option_without_another_edit(monkeypatch: pytest.MonkeyPatch) -> None:
    maker = cli_options.of_fields(WithTemperature, cli_options.SCORING)
    monkeypatch.setitem(cli_options.MAKERS, WithTemperature, maker)
    monkeypatch.setitem(SPACES, Wider.name, Wider)
    made: list[object] = []
    grown = typer.Typer()

    @command(grown)
    def show(*, config: WithTemperature, space: Space) -> None:
        made.extend([config, space])

    arguments = ["--temperature", "2.5", "--samples", "7", "--space", "wider", "--factor", "3"]
    result = CliRunner().invoke(grown, arguments)
    assert result.exit_code == 0, result.output
    assert made == [WithTemperature(samples=7, temperature=2.5), Wider(factor=3)]


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_help_texts_are_sentences(name: str) -> None:
    assert COMMANDS[name].help.endswith(".")
    own = [p for p in COMMANDS[name].params if p.name != "help"]
    assert own
    for parameter in own:
        text = getattr(parameter, "help", None)
        assert text, parameter.name
        assert text.endswith("."), (parameter.name, text)
        assert re.match(r"[A-Z]", text), (parameter.name, text)


@pytest.mark.parametrize(
    ("message", "arguments"),
    [
        ("expected a field of the space residual: depth, width, activation, "
             "activation_scaling, output_scale, got channels",
         ["--space", "residual", "--channels", "4"]),
        ("expected a field of the space nasbench201: channels, cells_per_stage, init, bn, got "
         "width", ["--width", "4"]),
        ("expected a field of the space nasbench201", ["--set", "size=4"]),
        ("expected channels to be of the type int, got 'few'", ["--set", "channels=few"]),
        ("expected NAME=VALUE after --set, got 'channels'", ["--set", "channels"]),
        ("expected a space: nasbench201, residual, residual_convolutional, or a Python file that "
             "defines one, got 'darts'",
         ["--space", "darts"]),
        ("expected a Python file at nowhere.py, got no such file", ["--space", "nowhere.py"]),
        ("expected width to be at least 1, got 0", ["--space", "residual", "--width", "0"]),
        ("expected a field of the space one_hidden: scale, centred, got size; leave it out",
         ["--space", OWN, "--set", "size=2"]),
        ("expected a field of the space one_hidden: scale, centred, got depth",
         ["--space", OWN, "--depth", "3"]),
        ("expected scale to be of the type float, got 'wide'; correct it",
         ["--space", OWN, "--set", "scale=wide"]),
        ("expected centred to be of the type bool, got 'perhaps'; correct it",
         ["--space", OWN, "--set", "centred=perhaps"]),
        (f"expected one class that inherits from ntkscore.Space in {OWN}, 'Two', got OneHidden",
         ["--space", f"{OWN}:Two"]),
    ],
)  # fmt: skip
def test_options_that_fit_no_space_are_refused(message: str, arguments: list[object]) -> None:
    refused(message, "score", "0", *arguments)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected one class that inherits from ntkscore.Space in {path}, got none; name it"),
        (
            "import ntkscore\nclass A(ntkscore.Residual): pass\nclass B(ntkscore.Residual): pass\n",
            "in {path}, got A, B; name it as FILE.py:CLASS",
        ),
        (
            "import ntkscore\nclass A(ntkscore.Residual): name = None\n",
            "expected the class A in {path} to have a name for records and messages, got none; "
            "add a line such as name = 'mine'",
        ),
    ],
)
def test_files_without_a_space_of_their_own_are_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    refused(message.format(path=path), "score", "0", "--space", path)


def test_one_of_several_spaces_in_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text(
        "import ntkscore\n"
        "class A(ntkscore.Residual): name = 'a'\n"
        "class B(ntkscore.Residual): name = 'b'\n"
    )
    assert space_class(f"{path}:B").name == "b"
    assert space_class(f"{path}:A").__name__ == "A"


@pytest.mark.thorough
def test_a_file_with_ones_own_space_is_an_argument(tmp_path: Path) -> None:
    own, out = ("--space", OWN, "--samples", "4"), tmp_path / "run"
    sheet = invoke("score", "8xtanh", *own, "--set", "scale=2", "--set", "centred=yes").stdout
    assert "network 8xtanh, 24,656 parameters" in sheet
    assert "scale 2.0, centred True" in " ".join(sheet.split())
    rank = ("rank", "--out", out, *own, "--set", "scale=2")
    invoke(*rank, "--cells", "8xtanh,16xrelu")
    result = invoke(*rank, "--by", "params")
    assert "2 from an earlier run" in result.stderr
    assert "12 networks, 0 without this score" in " ".join(result.stdout.split())
    refused("scale: stored 2.0, asked 1.0", "rank", "--out", out, *own)
    refused("expected WIDTHxACTIVATION, got '9xtanh'; try 24xtanh", "score", "9xtanh", *own)

    table = tmp_path / "mine.csv"
    names = [(width, name) for width in (8, 16, 24, 32) for name in ("relu", "tanh", "softplus")]
    rows = [f"{width}x{name},0.{width:02}" for width, name in names]
    table.write_text("\n".join(["network,pgd8", *rows]))
    named = ("--table", table, "--space", OWN, "--format", "csv", "--resamples", 10)
    text = invoke("correlate", out, *named).stdout
    assert "\nparams,ok,12,0,1.0," in text


def test_a_recorded_space_keeps_its_fields(tmp_path: Path) -> None:
    own, out = space_class(str(OWN)), tmp_path / "run"
    assert space_in(tmp_path) is None
    assert space_in(tmp_path, own) == own()
    ResultSet.create_or_resume(out, own(scale=3.0).columns, {}, ("network",))
    assert space_in(out) is None
    assert space_in(out, own) == own(scale=3.0)
    ResultSet.create_or_resume(tmp_path / "residual", Residual(width=8).columns, {}, ("skips",))
    assert space_in(tmp_path / "residual") == Residual(width=8)
