"""Spaces and attacks of installed packages: a stranger's are found as the library's own are."""

import json
import os
import shutil
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from tiny import REPOSITORY, refuses

import attacks
from cells import Residual
from ntkscore.kernels.attacks import ATTACKS
from ntkscore.registry import Registry, packages
from ntkscore.spaces import DEFAULT, SPACES, space_class

ATTACK = """
from attacks import Attack

def twisted(rho, norm="linf"):
    return Attack(rho, 2, rho / 2, norm=norm)
"""
ENTRY_POINTS = """
[ntkscore.spaces]
one_hidden = stranger.networks:OneHidden

[ntkscore.attacks]
twisted = stranger.attack:twisted
"""


@pytest.fixture
def stranger(tmp_path: Path) -> dict[str, str]:
    """The environment of a process that finds an installed package with a space and an attack."""
    package, info = tmp_path / "stranger", tmp_path / "stranger-1.0.dist-info"
    package.mkdir()
    info.mkdir()
    shutil.copy(REPOSITORY / "tests" / "run" / "own_space.py", package / "networks.py")
    (package / "__init__.py").touch()
    (package / "attack.py").write_text(ATTACK)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: stranger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, tmp_path)))}


def test_a_strangers_space_and_attack_rank_from_the_command_line(
    stranger: dict[str, str], tmp_path: Path
) -> None:
    def run(*words: str) -> str:
        command = [sys.executable, "-m", "ntkscore", *words]
        ended = subprocess.run(command, env=stranger, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    out = str(tmp_path / "run")
    sizes = ["--space", "one_hidden", "--scale", "2", "--samples", "4", "--format", "json"]
    score = ["score", "8xtanh,16xrelu", "--attack", "twisted", *sizes, "--out", out]
    rows = json.loads(run(*score))
    assert {row["network"] for row in rows} == {"8xtanh", "16xrelu"}
    recorded = json.loads((tmp_path / "run" / "run.json").read_text())["configuration"]
    assert (recorded["space"], recorded["scale"], recorded["attack"]) == (
        "one_hidden",
        2,
        "twisted",
    )
    assert {recorded["functions"][name] for name in ("space", "attack")} == {"built in"}
    # It goes on where it was, and is known without being named.
    assert json.loads(run(*score)) == rows
    assert {row["network"] for row in json.loads(run("rank", out, "--format", "json"))} == {
        "8xtanh",
        "16xrelu",
    }


def test_the_librarys_own_are_found_in_the_same_way() -> None:
    assert list(ATTACKS) == ["apgd", "fgsm", "pgd", "square"] and ATTACKS["pgd"] is attacks.pgd
    assert DEFAULT in SPACES and SPACES["residual"] is Residual
    assert {"attacks", "cells", "ntkscore"} <= set(packages())


def test_a_clone_that_is_not_installed_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ntkscore.registry._installed", lambda group: [])
    assert Registry(ATTACKS.group)["pgd"] is attacks.pgd
    assert Registry(SPACES.group)["residual"] is Residual


def test_what_a_program_adds_comes_before_what_is_installed() -> None:
    registry: Registry[object] = Registry(ATTACKS.group)
    registry["fgsm"] = "mine"
    assert registry["fgsm"] == "mine"
    del registry["fgsm"]
    assert registry["fgsm"] is attacks.fgsm
    with pytest.raises(KeyError):
        registry["none"]


@pytest.mark.parametrize(
    ("value", "got", "expected"),
    [
        ("nowhere:Space", ["nowhere"], ("gone", "ntkscore.spaces", "nowhere:Space")),
        ("cells:Gone", ["Gone"], ("gone", "ntkscore.spaces", "cells:Gone")),
        ("cells:Residual", ["cells.residual.networks.Residual"], ("gone", "ntkscore.Space")),
        ("a:A b:B", ["a:A", "b:B"], ("gone", "ntkscore.spaces")),
        ("attacks:fgsm", ["fgsm"], ("gone", "ntkscore.Space")),
    ],
)
def test_an_entry_point_that_leads_to_no_space_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str, got: list, expected: tuple
) -> None:
    declared = [EntryPoint("gone", each, SPACES.group) for each in value.split()]
    monkeypatch.setitem(SPACES._declared, "gone", declared)
    with refuses(*got, expected=expected):
        space_class("gone")
