"""What a person may give in place of what is meant, and the sentence that says so."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny import refuses, scored
from typer.testing import CliRunner

import ntkscore
from cells.nasbench201.space import NASBench201
from cells.residual import Residual
from ntkscore import Config
from ntkscore.cli.app import app
from ntkscore.data.images import ImageSet
from ntkscore.kernels.joint import Stack
from ntkscore.task import Task
from ntkscore.training.recipe import Recipe

SPACE = NASBench201(channels=2, cells_per_stage=1)
X, Y = np.random.default_rng(0).uniform(size=(2, 8, 8, 3)), np.array([0, 1])
FIRST = (0.5, 0.5, 0.5)


def refused(*words: object) -> str:
    """The one sentence of a command that ends with exit code 2."""
    ended = CliRunner().invoke(app(NASBench201), list(map(str, words)))
    assert ended.exit_code == 2, ended
    return " ".join(ended.stderr.split())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("normaliser", "got", "expected"),
    [
        ({"mean": (125.3, 123.0, 113.9)}, [125.3, 123, 113.9], ("mean", 0, 1)),
        ({"std": (63.0, 62.1, 66.7)}, [63, 62.1, 66.7], ("std", 0, 1)),
        ({"std": (0.0, 0.2, 0.2)}, [0, 0.2], ("std", 0, 1)),
        ({"std": (-0.25, 0.2, 0.2)}, [-0.25, 0.2], ("std", 0, 1)),
        ({"mean": (-0.5, 0.5, 0.5)}, [-0.5, 0.5], ("mean", 0, 1)),
        ({"mean": (np.nan, 0.5, 0.5)}, ["nan", 0.5], ("mean", 0, 1)),
        ({"std": (np.inf, 0.5, 0.5)}, ["inf", 0.5], ("std", 0, 1)),
        ({"mean": (0.5, 0.5)}, [2, 3], ("mean", "std")),
        ({"mean": 0.5}, [0.5], ("mean", "colour")),
        ({"mean": "a"}, ["a"], ("mean", "colour")),
        ({"std": [[0.2, 0.2, 0.2]]}, [[[0.2, 0.2, 0.2]]], ("std", "colour")),
        ({"mean": (), "std": ()}, [], ("mean", 0, 1)),
    ],
)
def test_a_normaliser_is_on_the_scale_of_pixels(
    normaliser: dict[str, Any], got: list, expected: tuple
) -> None:
    with refuses(*got, expected=expected):
        scored("323133", X, Y, space=SPACE, **normaliser)
    whole = {"mean": FIRST, "std": (0.25,) * 3} | normaliser
    with refuses(*got, expected=expected):
        Task((8, 8, 3), 2, **whole)
    with refuses(*got, expected=expected):
        ImageSet("mine", X, Y, 2, **whole, checksum="")


def test_a_normaliser_has_as_many_colours_as_the_images() -> None:
    with refuses(1, expected=(3, "images")):
        scored("323133", X, Y, space=SPACE, mean=(0.5,), std=(0.25,))
    with refuses(1, expected=(3, "mine")):
        ImageSet("mine", X, Y, 2, (0.5,), (0.25,), "")
    # Networks that do not use it may have any.
    assert Residual().on(Task((4, 4, 1), 3)).task.mean == (0.0, 0.0, 0.0)
    assert Task((8, 8, 3), mean=list(FIRST), std=[0.2] * 3).mean == FIRST


def test_a_normaliser_of_a_file_in_grey_levels_is_refused_by_commands(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    np.savez(path, images=X, labels=Y, mean=[125.3, 123.0, 113.9], std=[63.0, 62.1, 66.7])
    said = refused("score", "323133", "--data", path)
    assert "error: expected mean in pixels, from 0 to 1, got 125.3, 123, 113.9; divide" in said


@pytest.mark.parametrize(
    ("make", "got", "nearest"),
    [
        (lambda: Config(rho=8 / 255), "rho", ["rhos"]),
        (lambda: Config(beta=0.5), "beta", ["betas"]),
        (lambda: Config(epsilon=0.1), "epsilon", []),
        (lambda: NASBench201(channel=8), "channel", ["channels"]),
        (lambda: Residual(widht=8), "widht", ["width"]),
        (lambda: Recipe(betas=0.5), "betas", ["beta"]),
    ],
)
def test_an_unknown_choice_names_the_nearest(make: Any, got: str, nearest: list[str]) -> None:
    with refuses(got) as caught:
        make()
    names = caught.value.expected.replace(",", "").split()
    assert [word for word in caught.value.remedy.split() if word in names] == nearest


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("data", [X, None, 10, [X, Y]])
def test_images_to_draw_from_have_a_name_or_a_file(data: Any, tmp_path: Path) -> None:
    with refuses(type(data).__name__, expected="ImageSet"):
        ntkscore.score("random:4", data, out=tmp_path / "out")


@pytest.mark.slow
def test_radii_in_l2_are_those_of_the_images() -> None:
    """√192 is the distance of black from white in 8·8·3 numbers."""
    config = Config(attack="pgd", norm="l2", rhos=(3.0,), steps=2, step_size=1.5)
    rows = scored("01", X, Y, config, space=Residual(width=8))
    assert set(rows["rho"]) == {3.0} and set(rows["step_size"]) == {1.5}
    far = Config(norm="l2", rhos=(0.5, 14.0))
    with refuses(14, expected=("l2", 13.8564)):
        scored("01", X, Y, far, space=Residual(width=8))
    model = ntkscore.Model(
        lambda w, x: x.reshape(len(x), -1) @ w, np.random.default_rng(0).normal(size=(192, 2))
    )
    with refuses(14, expected=("l2", 13.8564)):
        scored(model, X, Y, far)
    with refuses(3, expected=("linf", 0, 1)):
        ntkscore.stack(model, X, Y, "fgsm", [3.0])


@pytest.mark.parametrize(
    ("steps", "step_size", "got"),
    [
        ("7", None, "'7'"),
        (2.5, None, "2.5"),
        (None, "2/255", "'2/255'"),
    ],
)
def test_steps_are_numbers(steps: Any, step_size: Any, got: str, unchecked: None) -> None:
    with refuses(got):
        Config(attack="pgd", steps=steps, step_size=step_size)


def test_beta_is_a_weight_wherever_it_is_given() -> None:
    kernels = Stack(np.eye(6)[None], np.eye(6)[None], {})
    for beta in (3, -0.1, float("nan")):
        for name in ("joint_clean", "joint_robust"):
            with refuses(beta, expected=("beta", 0, 1), remedy=0):
                kernels.kernel(name, beta=beta)
            with refuses(beta, expected=("beta", 0, 1)):
                ntkscore.joint_kernel(np.asarray(kernels.gram)[0], name, beta, 2)


def test_commands_name_what_was_given_in_place_of_what_is_meant(tmp_path: Path) -> None:
    run = tmp_path / "first"
    run.mkdir()
    (run / "run.json").write_text('{"configuration": {}, "identity": ["cell"], "sessions": []}')
    table = tmp_path / "mine.csv"
    table.write_text("cell,pgd8\n2581,0.4\n1462,0.3\n7,0.2\n9,0.1\n")
    said = refused("correlate", table, "--table", run)
    assert f"got the run {run}; name the run first and the table second (--table)" in said
    assert "`ntkscore fetch nas-robbench-201`" in refused("correlate", "recorded")
    said = refused("evaluate", run, "--data", "synthetic")
    assert f"got the scores of a run in {run}; train one of its networks" in said
    for out in (table, table / "below"):
        said = refused("score", "random:2", "--out", out, "--samples", 4)
        assert f"results at {out}, but {table} is a file; name another" in said


def test_a_tables_own_metrics_are_those_of_its_networks_by_any_name(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text("network,pgd8\n323133,0.4\n421211,0.3\n012343,0.2\n111111,0.1\n")
    frame = ntkscore.correlate(table, table, metric="pgd8", resamples=10)
    assert frame.set_index("score").loc["val_pgd_8_acc", ["n", "spearman"]].tolist() == [4, 1]


@pytest.mark.usefixtures("unchecked")
def test_a_module_of_pytorch_is_told_of_the_bridge() -> None:
    kind = type("ResNet", (), {"__module__": "torch.nn.modules.module"})
    with refuses("ResNet", remedy="ntkscore.from_torch(module, images)"):
        ntkscore.ntk(kind(), X)  # type: ignore[arg-type]
