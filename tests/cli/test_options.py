"""Every choice is declared once, as a field; the commands' options follow."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import typer
from tiny import invoke, refused, refuses
from typer.main import get_command
from typer.testing import CliRunner

from cells.darts import Darts
from cells.nasbench201.space import NASBench201
from cells.residual import Residual, ResidualConvolutional
from cells.timm import Timm
from cells.wideresnet import WideResNet
from ntkscore.cli.app import app
from ntkscore.cli.options import Drawn, flag_of, registered, select
from ntkscore.config import Config
from ntkscore.measures import MEASURES
from ntkscore.options import option, options
from ntkscore.results import ResultSet
from ntkscore.space import Space
from ntkscore.spaces import SPACES, space_class, space_in
from ntkscore.training.recipe import Recipe

OWN = Path(__file__).parents[1] / "run" / "own_space.py"
COMMANDS = get_command(app(NASBench201)).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
@pytest.mark.parametrize(
    ("name", "cls"), [("score", Config), ("fits", Config), ("score", Drawn), ("train", Recipe)]
)
def test_every_field_is_an_option(name: str, cls: type, space: type[Space]) -> None:
    command = get_command(app(space)).commands[name]  # type: ignore[attr-defined]
    flags = {flag.lstrip("-") for parameter in command.params for flag in parameter.opts}
    assert options(cls) and (options(space) or space is Timm)
    assert {flag_of(field) for field in (*options(cls), *options(space))} <= flags


def test_the_packages_of_cells_declare_the_spaces_that_have_names() -> None:
    ours = {Darts, NASBench201, Residual, ResidualConvolutional, Timm, WideResNet}
    assert set(SPACES.values()) == ours == {SPACES[space.name] for space in ours}


def test_the_first_seed_chooses_random_networks() -> None:
    scoring = Drawn(seed=3, seeds=2).scoring(Config(), Residual(depth=10))
    chosen = select(scoring, ["random:4"], None)
    assert chosen == scoring.select("random:4", seed=3) != scoring.select("random:4", seed=0)


@dataclass(frozen=True, kw_only=True)
class Wider(Residual):
    name: ClassVar[str] = "wider"

    factor: float = option(0.1, "Factor of the width.")
    centred: bool = option(False, "Subtract the mean.")


def value_of(kind: type, *arguments: str, space: type[Space] = NASBench201) -> object:
    """What a command is called with for a parameter of this type."""
    made: list[object] = []

    def show(*, value: object) -> None:
        made.append(value)

    show.__annotations__["value"] = kind
    grown = typer.Typer()
    grown.command()(registered(show, space))
    result = CliRunner().invoke(grown, arguments)
    assert result.exit_code == 0, result.output
    return made[0]


def test_the_options_make_the_values_that_their_texts_say() -> None:
    assert [value_of(each) for each in (Config, Recipe)] == [Config(), Recipe()]
    config = Config(
        rhos=(3 / 255, 0.5), attack="pgd", steps=3, step_size=2 / 255, norm="l2", betas=(0.25,)
    )
    texts = "--rho 3/255 --rho 0.5 --attack pgd --steps 3 --step-size 2/255 --norm l2 --beta 1/4"
    assert value_of(Config, *texts.split()) == config
    assert value_of(Recipe, "--batch-size", "7") == Recipe(batch=7)
    assert value_of(Recipe, "--no-augment") == Recipe(augment=False)
    assert value_of(Space, "--bn", "init") == NASBench201(bn="init")
    wider = value_of(Space, "--factor", "1/3", "--width", "9", "--centred", space=Wider)
    assert wider == Wider(factor=1 / 3, width=9, centred=True)


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
        (f"expected a space: {', '.join(SPACES)}, or a Python file that defines one, got 'dartz'",
         ["--space", "dartz"]),
        ("expected a Python file at nowhere.py, got no such file", ["--space", "nowhere.py"]),
        ("expected width to be at least 1, got 0", ["--space", "residual", "--width", "0"]),
        (f"expected one class that inherits from ntkscore.Space in {OWN}, 'Two', got OneHidden",
         ["--space", f"{OWN}:Two"]),
    ],
)  # fmt: skip
def test_options_that_fit_no_space_are_refused(message: str, arguments: list[object]) -> None:
    refused(message, "score", "0", *arguments)


def test_options_of_another_space_are_refused() -> None:
    for words in (["--space", "residual", "--channels", "4"], ["--width", "4"]):
        assert f"No such option: {words[-2]}" in invoke("score", "0", *words, code=2).stderr
    assert "No such option" in invoke("score", "0", "--space", OWN, "--size", "2", code=2).stderr
    refused("got 'wide'; write it that way", "score", "0", "--space", OWN, "--scale", "wide")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected networks(images), or a class that inherits from ntkscore.Space, in {path}"),
        (
            "import cells\nclass A(cells.Residual): pass\nclass B(cells.Residual): pass\n",
            "in {path}, got A, B; name it as FILE.py:CLASS",
        ),
        (
            "import cells\nclass A(cells.Residual): name = None\n",
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
        "import cells\nclass A(cells.Residual): name = 'a'\nclass B(cells.Residual): name = 'b'\n"
    )
    assert space_class(f"{path}:B").name == "b"
    assert space_class(f"{path}:A").__name__ == "A"


def test_a_file_that_defines_a_space_is_executed_once(tmp_path: Path) -> None:
    """Whoever asks for its class, so that it may register measures too; its path may have colons.

    A file that has changed since is another one.
    """
    path = tmp_path / "c:d" / "mine.py"
    path.parent.mkdir()
    text = OWN.read_text() + "\nntkscore.add_score('top', max, direction=+1, formula='top')\n"
    path.write_text(text)
    try:
        first = space_class(str(path))
        assert space_class(str(path)) is space_class(f"{path}:OneHidden") is first
        refused("expected a results directory", "rank", tmp_path, "--space", path)
        given = ("--space", path, "--table", "x")
        refused("expected a readable file at x", "predict", tmp_path, *given)
    finally:
        MEASURES.pop("top", None)
    os.utime(path, (1, 1))
    try:
        assert space_class(str(path)) is not first
    finally:
        MEASURES.pop("top", None)


@pytest.mark.thorough
def test_a_file_with_ones_own_space_is_an_argument(tmp_path: Path) -> None:
    own, out = ("--space", OWN, "--samples", "4"), tmp_path / "run"
    sheet = invoke("score", "8xtanh", *own, "--scale", "2", "--centred").stdout
    assert "network 8xtanh, 24,656 parameters" in sheet
    assert "scale 2.0, centred True" in " ".join(sheet.split())
    into = ("--out", out, *own, "--scale", "2")
    invoke("score", "8xtanh,16xrelu", *into)
    assert "2 from an earlier run" in invoke("score", "distinct", *into).stderr
    table = invoke("rank", out, "--space", OWN, "--by", "params").stdout
    assert "12 networks, 0 without this score" in " ".join(table.split())
    refused("scale: stored 2.0, asked 1.0", "score", "distinct", "--out", out, *own)
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
    ResultSet.create_or_resume(out, own(scale=3.0).columns, ("network",))
    with refuses("one_hidden", expected=out, remedy="--space"):
        space_in(out)
    assert space_in(out, own) == own(scale=3.0)
    ResultSet.create_or_resume(tmp_path / "residual", Residual(width=8).columns, ("skips",))
    assert space_in(tmp_path / "residual") == Residual(width=8)
