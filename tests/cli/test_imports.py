"""What a command has to wait for: help, look-ups and refusals of bad input import no JAX."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from tiny import REPOSITORY

JAX = {"jax", "jaxlib", "flax", "optax"}
PROGRAM = """
import json, sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from ntkscore.cli import main

def code(arguments):
    with redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        try:
            main(arguments)
        except SystemExit as end:
            return end.code or 0

for arguments in json.loads(sys.argv[1]):
    print(code(arguments), *sys.modules)
"""


def run(program: str, *arguments: str) -> list[list[str]]:
    """The words of each line that a program prints in a process of its own."""
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", program, *arguments]
    printed = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return [line.split() for line in printed.stdout.splitlines()]


def check(commands: Iterable[list[str]], code: int, absent: set[str]) -> None:
    """Each of these commands, one after the other, ends with this code and imports none of that."""
    commands = list(commands)
    ended = run(PROGRAM, json.dumps(commands))
    for command, (found, *modules) in zip(commands, ended, strict=True):
        assert (int(found), absent & set(modules)) == (code, set()), command


def test_help_imports_nothing_heavy() -> None:
    names = ("score", "rank", "correlate", "lookup", "verify", "fetch")
    commands = [["--help"], *([name, "--help"] for name in names)]
    check(commands, 0, {*JAX, "pandas", "pyarrow", "scipy", "requests"})


def test_looking_up_imports_no_jax(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("cell,cifar10#clean\n2581,0.79\n")
    command = ["lookup", "323133", "--table", str(table)]
    check([command, [*command, "--format", "csv"]], 0, {*JAX, "scipy"})
    check([["rank", "recorded", "--top", "1"]], 0, JAX)


def test_refusing_imports_no_jax(tmp_path: Path) -> None:
    mine, out = tmp_path / "mine", str(tmp_path / "run")
    mine.mkdir()
    (mine / "notes.txt").write_text("")
    score = ["score", "323133", "--out", out]
    commands = [
        ["score", "15625"],
        ["score", "01", "--space", "residual", "--channels", "4"],
        ["score", "0", "--space", "nowhere.py"],
        ["score", "0", "--channels", "0"],
        ["score", "0", "--bn", "frozen"],
        ["score", "0", "--init", "zeros"],
        ["score", "0", "--output", "mean"],
        ["score", "0", "--parameters", "biases"],
        ["score", "0", "--implementation", "fast"],
        ["score", "0", "--attack", "cw"],
        ["score", "0", "--steps", "3"],
        ["score", "0", "--rho", "2"],
        ["score", "0", "--samples", "1001"],
        ["score", "0", "--data", "nowhere.npz"],
        ["score", "0", "--data", "cifar10", "--data-dir", str(tmp_path)],
        ["score", "323133", "--out", str(mine)],
        [*score, "--seeds", "0"],
        [*score, "--batch", "0"],
        ["score", "random:0", "--out", out],
        ["rank", "--out", out, "--cells", "random:4"],
        ["search", "--out", out, "--by", "robust.norm"],
        ["correlate", out, "--table", "nowhere.csv"],
        ["lookup", "323133", "--table", "nowhere.json"],
        ["verify", "nowhere.npz"],
        ["fetch", "svhn"],
    ]
    check(commands, 2, {*JAX, "scipy"})
    assert not Path(out).exists()


@pytest.mark.parametrize(
    "program",
    [
        "import ntkscore; dir(ntkscore)",
        "from cells import NASBench201, Residual, WideResNet; NASBench201(bn='init'); Residual()",
        "from ntkscore import Config; Config(attack='pgd', steps=3, output='loss')",
        "from ntkscore import ATTACKS; ATTACKS['mine'] = lambda rho: None\n"
        "from ntkscore import Config; Config(attack='mine')",
        "from ntkscore.kernels.readouts import READOUTS; READOUTS['mine'] = lambda f, y: f[None]\n"
        "from ntkscore import Config; Config(output='mine')",
    ],
)
def test_choosing_imports_no_jax(program: str) -> None:
    (modules,) = run(f"{program}\nimport sys; print(*sys.modules)")
    assert not JAX & set(modules)
