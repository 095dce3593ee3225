"""Accuracies of networks whose answers are known; the Square attack; corrupted images; commands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from tiny import invoke, refused, refuses

from attacks import AttackError, SquareAttack, Victim
from cells.nasbench201.cell import Cell
from ntkscore.data.images import load_images
from ntkscore.model import Model
from ntkscore.training import evaluation
from ntkscore.training.evaluation import CORRUPTIONS, checks, evaluate
from ntkscore.training.fit import split
from ntkscore.training.runs import open_trained


def brightness(threshold: float = 0.5) -> Model:
    """Tells an image brighter than a threshold to be of class 1."""

    def apply(weight: jax.Array, x: jax.Array) -> jax.Array:
        mean = jnp.mean(x, (1, 2, 3)) - threshold
        return jnp.stack([-mean, mean], 1) * weight

    return Model(apply, jnp.ones(()))


def greys(levels: list[float]) -> np.ndarray:
    return np.ones((len(levels), 4, 4, 3), np.float32) * np.array(levels)[:, None, None, None]


def test_accuracies_of_a_network_that_looks_at_brightness() -> None:
    # Distances to the threshold: .005, .02, .05, .2, and one image that is told wrong.
    images, labels = greys([0.505, 0.52, 0.55, 0.7, 0.4]), np.array([1, 1, 1, 1, 1])
    rows = evaluate(brightness(), images, labels, queries=200)
    whole = rows[rows["class"] == -1].assign(levels=(rows["rho"] * 255).round())
    found = whole.set_index(["metric", "levels"])["value"]
    assert found["clean", 0] == 0.8
    for metric in ("fgsm", "pgd"):
        assert found[metric, 3] == 0.6 and found[metric, 8] == 0.4
    assert found["pgd", 16] == 0.2 and found["pgd", 64] == 0.0
    assert found["square", 3] == 0.6
    assert found["draws", 8] >= found["pgd", 8]
    assert (whole[whole["metric"].isin(evaluation.CHECKS)]["value"] == 1).all()
    assert rows[rows["class"] == 1]["value"].tolist()[0] == 0.8


@pytest.mark.parametrize("scale", [100.0, 1e4])
def test_attacks_on_a_network_that_is_sure_of_its_answer(scale: float) -> None:
    """The decisions are those of the other test, and so are the right attacks."""
    images, labels = greys([0.505, 0.52, 0.55, 0.7, 0.4]), np.array([1, 1, 1, 1, 1])
    plain = brightness()
    sure = Model(lambda w, x: scale * plain.apply(w, x), plain.params)
    ask = {"radii": (3, 8, 16), "metrics": ("fgsm", "pgd")}
    pd.testing.assert_frame_equal(
        evaluate(sure, images, labels, **ask), evaluate(plain, images, labels, **ask)
    )


def test_attacks_move_the_images_of_weights_of_few_bits() -> None:
    """A step of PGD-20 at 3/255 is less than half a bit of a bright bfloat16 pixel."""
    few = brightness(0.7421875)._replace(params=jnp.ones((), jnp.bfloat16))
    ask = {"radii": (3,), "metrics": ("pgd",)}
    rows = evaluate(few, greys([0.75, 0.78]), np.array([1, 1]), **ask)
    assert rows[rows["class"] == -1]["value"].tolist() == [0.5]


def test_classes_and_batches_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images, labels = (
        rng.integers(256, size=(23, 4, 4, 3)).astype(np.uint8),
        rng.integers(2, size=23),
    )
    whole = evaluate(brightness(), images, labels, radii=(3,))
    monkeypatch.setattr(evaluation, "BATCH", 5)
    parts = evaluate(brightness(), images, labels, radii=(3,))
    for metric in ("clean", "fgsm"):
        pd.testing.assert_frame_equal(
            *(each[each["metric"] == metric].reset_index(drop=True) for each in (whole, parts))
        )
    clean = whole[whole["metric"] == "clean"].set_index("class")["value"]
    counts = np.bincount(labels)
    assert clean[-1] == pytest.approx((counts * [clean[0], clean[1]]).sum() / 23)


def test_signs_of_masked_gradients_are_told() -> None:
    masked = {("pgd", 3): 0.5, ("pgd", 8): 0.6, ("pgd", 255): 0.1, ("fgsm", 3): 0.4}
    masked |= {("draws", 3): 0.3, ("square", 3): 0.2}
    assert not any(checks(masked).values()) and len(checks(masked)) == 5
    assert checks({("clean", 0): 1.0, ("pgd", 3): 0.5}) == {}


def test_square_stays_in_the_ball_and_lowers_margins() -> None:
    keys = jax.random.split(jax.random.key(0), 3)
    x = jax.random.uniform(keys[0], (6, 8, 8, 3))
    weights = jax.random.normal(keys[1], (192, 4))
    logits = lambda z: jnp.tanh(z.reshape(len(z), -1) - 0.5) @ weights  # noqa: E731
    y = jnp.argmax(logits(x), 1)

    def margin(z: jax.Array) -> np.ndarray:
        given = np.array(logits(z))
        own = given[np.arange(6), np.asarray(y)]
        given[np.arange(6), np.asarray(y)] = -np.inf
        return own - given.max(1)

    before = margin(x)
    found = {}
    for queries in (1, 20, 200):
        z = jax.jit(
            lambda x, q=queries: SquareAttack(0.05, queries=q)(Victim(logits, y), x, keys[2])
        )(x)
        assert float(jnp.abs(z - x).max()) <= 0.05 + 1e-6
        assert float(z.min()) >= 0 and float(z.max()) <= 1
        found[queries] = margin(z)
    # An image that is told wrong is left alone; the others only get worse.
    assert (found[200] <= np.minimum(found[1], before).clip(0) + 1e-5).all()
    assert (found[200] <= 0).sum() >= (found[1] <= 0).sum()
    wrong = jnp.argmin(logits(x), 1)
    kept = SquareAttack(0.05, queries=3)(Victim(logits, wrong), x, keys[2])
    np.testing.assert_array_equal(kept, x)
    with refuses(2, expected=("linf", 0, 1), kind=AttackError):
        SquareAttack(2.0)
    with refuses(0, expected="query", kind=AttackError):
        SquareAttack(0.1, queries=0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("radius", [8 / 255, 0, 256, "8", -3])
def test_radii_are_in_grey_levels(radius: Any) -> None:
    with refuses(radius, expected=(1, 255), remedy="8/255"):
        evaluate(brightness(), greys([0.2]), np.array([0]), radii=(radius,))


def test_squares_shrink_as_published() -> None:
    attack = SquareAttack(0.1, queries=10_000)
    past = [sum(i >= start for start in attack._starts()) for i in (0, 11, 51, 201, 8001)]
    sides = [attack._sides(32, 32)[halvings] for halvings in past]
    # round(√(p h w)) of p = .8, .4, .2, .1 and .8/512.
    assert sides == [29, 20, 14, 10, 1]


def corrupted(folder: Path, count: int = 2) -> Path:
    folder.mkdir()
    labels = np.tile(np.array([0, 1])[:count], 5)
    np.save(folder / "labels.npy", labels)
    for i, name in enumerate(CORRUPTIONS):
        images = np.where(labels[:, None, None, None] == 1, 200, 50) * np.ones((1, 4, 4, 3))
        images[: i % 5] = 255 - images[: i % 5]
        np.save(folder / f"{name}.npy", images.astype(np.uint8))
    return folder


def test_corrupted_images_are_told_by_severity(tmp_path: Path) -> None:
    folder = corrupted(tmp_path / "c")
    rows = evaluate(brightness(), greys([0.2, 0.8]), np.array([0, 1]), radii=(), corruptions=folder)
    found = rows[rows["severity"] > 0]
    assert len(found) == 15 * 5
    table = found.pivot(index="metric", columns="severity", values="value")
    assert table.loc["gaussian_noise"].tolist() == [1, 1, 1, 1, 1]
    assert table.loc["shot_noise"].tolist() == [0.5, 1, 1, 1, 1]
    assert table.loc["glass_blur"].tolist() == [0, 0, 1, 1, 1]
    (folder / "fog.npy").unlink()
    given = (brightness(), greys([0.2]), np.array([0]))
    with refuses(folder / "fog.npy", expected=folder / "fog.npy"):
        evaluate(*given, radii=(), corruptions=folder)
    np.save(folder / "fog.npy", np.zeros((3, 4, 4, 3), np.uint8))
    with refuses((3, 4, 4, 3), expected=((10, 4, 4, 3), folder / "fog.npy")):
        evaluate(*given, radii=(), corruptions=folder)
    with refuses((0, 4, 4, 3), (0,), expected="label"):
        evaluate(brightness(), greys([]), np.array([], int))


OWN = Path(__file__).parents[1] / "run" / "own_space.py"
OPTIONS = "--channels 2 --cells-per-stage 1 --epochs 1 --batch-size 20 --held-out 960 "
OPTIONS += "--attack-steps 1"
OWN_SPACE = """
from dataclasses import dataclass
from typing import ClassVar
import cells

@dataclass(frozen=True, kw_only=True)
class Mine(cells.NASBench201):
    name: ClassVar[str] = "mine"
"""


@pytest.mark.thorough
def test_the_commands_train_evaluate_export_and_refuse(tmp_path: Path) -> None:
    run, dict_file = tmp_path / "run", tmp_path / "weights.npz"
    trained = invoke("train", "323133", "--out", str(run), *OPTIONS.split(), "--format", "json")
    assert trained.exit_code == 0, trained.output
    history = json.loads(trained.stdout)
    assert [row["seed"] for row in history] == [0] and history[0]["clean_accuracy"] is None
    again = invoke("train", "323133", "--out", str(run), *OPTIONS.split(), "--format", "json")
    assert json.loads(again.stdout) == history
    asked = ["evaluate", run, "--rows", "10", "--export", dict_file, "--format", "json"]
    shown = invoke(*asked)
    rows = json.loads(shown.stdout)
    assert len(pd.read_csv(run / "evaluation.csv")) == len(rows)
    assert dict_file.exists()
    scored = invoke("score", "323133", "--weights", run, "--samples", "4", "--format", "json")
    assert {row["trained_seed"] for row in json.loads(scored.stdout)} == {0}
    refused("expected weights of 000000, got those of", "score", "000000", "--weights", run)
    refused("expected no --out beside --weights", "score", "0", "--weights", run, "--out", run)
    for arguments, sentence in (
        (["train", "323133", "--out", str(run), "--beta", "2"], "expected beta from 0 to 1, got 2"),
        (
            ["train", "323133", "--out", str(run)],
            "a run with the same settings, got one with others",
        ),
        (["train", "nonsense", "--out", str(run)], "error: "),
        (["evaluate", str(tmp_path)], "a folder that `ntkscore train` left"),
        (["evaluate", str(dict_file)], f"expected the cell that the weights in {dict_file} are of"),
    ):
        assert sentence in " ".join(invoke(*arguments, code=2).stderr.split())


@pytest.mark.thorough
def test_a_network_of_ones_own_space_is_evaluated(tmp_path: Path) -> None:
    file, run = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(OWN_SPACE)
    invoke("train", "300000", "--space", file, "--out", run, *OPTIONS.split())
    refused("expected a known space in", "evaluate", run, "--rows", "10")
    shown = invoke("evaluate", run, "--space", file, "--rows", "10", "--format", "json")
    assert {row["cell"] for row in json.loads(shown.stdout)} == {Cell.parse("300000").index}
    asked = ("score", "300000", "--space", file, "--weights", run, "--samples", "4")
    scored = invoke(*asked, "--format", "json")
    assert {row["trained_seed"] for row in json.loads(scored.stdout)} == {0}


@pytest.mark.slow
def test_a_space_may_know_its_networks_by_name_only(tmp_path: Path) -> None:
    file, run, small = OWN, tmp_path / "run", tmp_path / "small.npz"
    short = ["--epochs", "1", "--batch-size", "20", "--held-out", "960", "--attack-steps", "1"]
    invoke("train", "24xtanh", "--space", file, "--out", run, *short)
    shown = invoke("evaluate", run, "--space", file, "--rows", "10", "--format", "json")
    assert {row["network"] for row in json.loads(shown.stdout)} == {"24xtanh"}
    np.savez(small, images=np.zeros((10, 28, 28, 3), np.uint8), labels=np.arange(10))
    asked = ("evaluate", run, "--space", file, "--data", small)
    refused("expected images of the shape (32, 32, 3) and 10 classes, as", *asked)


OWN_NETWORKS = """
import jax.numpy as jnp, numpy as np
from ntkscore import Model

def networks(images):
    weights = np.random.default_rng(0).normal(size=(192, 5)).astype(np.float32)
    apply = lambda w, x: (x - 0.5).reshape(len(x), -1) @ w
    scales = {"plain": 1, "steep": 9}
    return {name: Model(apply, jnp.asarray(scale * weights)) for name, scale in scales.items()}
"""


@pytest.mark.slow
def test_networks_of_a_file_are_attacked_and_kept(tmp_path: Path) -> None:
    file, images, out = tmp_path / "mine.py", tmp_path / "images.npz", tmp_path / "out"
    file.write_text(OWN_NETWORKS)
    rng = np.random.default_rng(1)
    pixels = rng.integers(90, 160, (24, 8, 8, 3)).astype(np.uint8)
    weights = np.random.default_rng(0).normal(size=(192, 5))
    labels = ((pixels / 255 - 0.5).reshape(24, -1) @ weights).argmax(1)
    np.savez(images, images=pixels, labels=labels)
    asked = ("evaluate", file, "--data", images, "--attack", "autoattack", "--out", out)
    curve = ("--rho", "1/255", "--rho", "4/255", "--plot", tmp_path / "curve.png")
    rows = pd.DataFrame(json.loads(invoke(*asked, *curve, "--format", "json").stdout))
    assert rows["after"].tolist() == ["clean", "apgd-ce", "apgd-t", "fab-t", "square"] * 4
    last = rows[rows["after"] == "square"].set_index(["network", "rho"])["accuracy"]
    # Of linear networks the scale of the logits decides nothing.
    assert last["plain", 1 / 255] == last["steep", 1 / 255] > last["plain", 4 / 255]
    assert (tmp_path / "curve.png").stat().st_size > 1000
    (kept,) = out.glob("plain*1-255")
    claim = json.loads((kept / "claim.json").read_text())
    assert claim["eps"] == "1/255" and claim["clean_acc"] == "100.00"
    assert float(claim["autoattack_acc"]) == pytest.approx(100 * last["plain", 1 / 255], abs=0.01)
    right = pd.read_csv(kept / "right.csv")
    assert right["square"].mean() == last["plain", 1 / 255]
    refused(
        "expected --attack beside --rho, --norm, --out, --plot, got --rho",
        "evaluate",
        file,
        "--data",
        images,
        "--rho",
        "1/255",
    )
    refused("got one with others (images)", *asked, *curve[:2], "--rows", "9")
    refused("expected --attack without --queries and", *asked, "--queries", "5")
    refused("--norm, --out, --plot, got --norm", "evaluate", file, "--data", images, "--norm", "l2")


@pytest.mark.thorough
def test_images_of_a_file_are_those_that_were_held_out(tmp_path: Path) -> None:
    file, others, run = (tmp_path / name for name in ("mine.npz", "others.npz", "run"))
    rng = np.random.default_rng(0)
    for path in (file, others):
        images = rng.integers(0, 256, (60, 8, 8, 3), np.uint8)
        np.savez(path, images=images, labels=np.arange(60) % 4)
    training = ("--data", file, *OPTIONS.replace("960", "40").split())
    invoke("train", "300000", "--out", run, *training)
    rows = json.loads(invoke("evaluate", run, "--data", file, "--format", "json").stdout)
    (clean,) = (row["value"] for row in rows if (row["metric"], row["class"]) == ("clean", -1))
    images, trained = load_images(file), open_trained(run)
    _, held = split(60, 40)
    at = {"images": images.images[held], "labels": images.labels[held]}
    again = evaluate(trained.model(), **at, radii=(), metrics=("clean",))
    assert clean == again.set_index("class")["value"][-1] and 40 * clean == round(40 * clean)
    invoke("evaluate", run, "--data", others, "--rows", "10")
    refused("such as --data mine.npz", "evaluate", run)
    training = ("--data", file, *OPTIONS.replace("960", "0").split())
    invoke("train", "300000", "--out", tmp_path / "all", *training)
    asked = ("evaluate", tmp_path / "all", "--data", file)
    refused("was not trained on, got those of its training", *asked)
    refused("expected a folder that `ntkscore train` left, or a", "evaluate", tmp_path / "rnu")


def test_weights_that_are_numbers_of_two_kinds_are_evaluated() -> None:
    bright = brightness()
    mixed = {"index": np.arange(3), "weights": bright.params}
    model = Model(lambda p, x: bright.apply(p["weights"], x), mixed)
    images, labels = greys([0.2, 0.9]), np.array([0, 1])
    ask = {"radii": (), "metrics": ("clean",)}
    pd.testing.assert_frame_equal(
        evaluate(model, images, labels, **ask), evaluate(bright, images, labels, **ask)
    )
    with refuses(51, 229.5, remedy=255):
        evaluate(bright, 255 * images, labels, **ask)
    with refuses((2, 4, 4, 3), (1,), expected="label"):
        evaluate(bright, images, labels[:1], **ask)


@pytest.mark.thorough
def test_a_state_dict_is_evaluated(tmp_path: Path) -> None:
    from cells.nasbench201.checkpoints import write_state_dict
    from cells.nasbench201.space import NASBench201
    from ntkscore.training.sources import trained_networks

    images = load_images("synthetic")
    few = replace(images, images=images.images[:8, ::4, ::4], labels=images.labels[:8])
    space = NASBench201(channels=2, cells_per_stage=1).on(few.task)
    cell = space.parse("323133")
    variables = space.draw(space.shape(cell), 0, jnp.float32)
    np.savez(tmp_path / "w.npz", **write_state_dict(variables, cell, space, running=True))
    sizes = ["--channels", "2", "--cells-per-stage", "1", "--cell", "323133"]
    networks = trained_networks(
        tmp_path / "w.npz",
        "323133",
        NASBench201(channels=2, cells_per_stage=1),
        lambda held_out: few,
    )
    ((columns, model),) = networks.pairs
    assert columns["cell"] == cell.index and networks.images is few
    pixels = jnp.asarray(few.pixels)
    plain = space.trainable(cell).evaluate(variables["params"], variables["batch_stats"], pixels)
    np.testing.assert_allclose(model.apply(model.params, pixels), plain, atol=1e-4)
    score = ["--weights", tmp_path / "w.npz", *sizes[:4], "--samples", "4"]
    refused("got also", "score", "000000", *score)
    refused("expected one network with --weights, got 2", "score", "1", "2", *score)
    (tmp_path / "w.npz").write_bytes(b"no")
    refused("a state dict in", "score", "323133", *score)
