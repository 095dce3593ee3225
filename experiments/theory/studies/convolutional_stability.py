"""S4: perturbation stability of convolutional and residual networks, and when training may stop."""

import itertools
from collections.abc import Callable, Iterator

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree

from experiments.plotting import panels
from experiments.study import LEARNED, OURS, Outcome, Study
from experiments.theory.networks import fully_connected, fully_connected_network
from experiments.theory.seeds import over_seeds
from experiments.theory.studies.lazy_stability import LENGTH, trained
from experiments.theory.studies.setting import Rows, lines, numbers
from experiments.theory.studies.statistics import Findings, ratio, within
from experiments.theory.tasks import area_means, on_sphere
from ntkscore.data.images import load_images

SIDE, OUTPUTS, TRAIN, TEST, EPOCHS, SEEDS = 8, 10, 1000, 2000, 100, 5
WIDTHS, LAYERS = (12, 24, 48), (4, 8)
"""Channels or features, and layers of weights."""
RATES = {"fully connected": 0.05, "convolutional": 0.1, "residual": 0.3}
"""Learning rates. The mean over pixels makes gradients small; at 0.3 deep convolutions diverge."""
STOPPED = ((32, 4), (64, 8))
"""Widths and layers of the fully connected networks that are trained for longer."""
SHORT, LONG = 50, 200
FLAT = 1
"""Change of accuracy and loss, in hundredths, that counts as none between the two epochs."""
STEADY = 0.1
"""Relative change of 𝒫 that counts as none."""
DEPTH, STOPPING = "7 and 8", "6"
"""Figures of the paper that a row is for."""
FULL = {
    "SIDE": 28,
    "TRAIN": 60_000,
    "TEST": 10_000,
    "EPOCHS": 50,
    "SEEDS": 5,
    "WIDTHS": (4, 8, 16, 32, 64, 128, 256),
    "LAYERS": (4, 6, 8, 10, 18, 34),
}


def draw(key: PRNGKeyArray, width: int, layers: int) -> list[Array]:
    """He's weights of L − 1 convolutions of 3 × 3 pixels and an output layer, of gray images."""
    sizes = [(3, 3, 1, width), *[(3, 3, width, width)] * (layers - 2), (width, OUTPUTS)]
    return [
        jax.random.normal(k, size) * (2 / np.prod(size[:-1])) ** 0.5
        for k, size in zip(jax.random.split(key, layers), sizes, strict=True)
    ]


def convolve(x: Array, w: Array) -> Array:
    """Convolution of 3 × 3 pixels, zeros around the images; a product is quick inside loops."""
    padded, (_, height, across, _) = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), x.shape
    shifted = [padded[:, i : i + height, j : j + across] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, -1) @ w.reshape(-1, w.shape[-1])


def normalised(h: Array) -> Array:
    """Channels of mean 0 and variance 1 over the batch, whose statistics count as constants."""
    mean, std = (lax.stop_gradient(each(h, (0, 1, 2))) for each in (jnp.mean, jnp.std))
    return (h - mean) / (std + 1e-3)


def convolutional(weights: list[Array], x: Array) -> Array:
    """Convolutions with relu, the mean over pixels, an output layer."""
    for w in weights[:-1]:
        x = jax.nn.relu(convolve(x, w))
    return jnp.mean(x, (1, 2)) @ weights[-1]


def residual(weights: list[Array], x: Array) -> Array:
    """A convolution, blocks of two with a skip each, the mean over pixels, an output layer."""
    h = convolve(x, weights[0])
    for first, second in zip(weights[1:-1:2], weights[2:-1:2], strict=True):
        inner = convolve(jax.nn.relu(normalised(h)), first)
        h = h + convolve(jax.nn.relu(normalised(inner)), second)
    return jnp.mean(jax.nn.relu(normalised(h)), (1, 2)) @ weights[-1]


FULLY = "fully connected"
NETWORKS: dict[str, Callable[[PyTree, Array], Array]] = {
    FULLY: lambda weights, x: fully_connected(weights, x.reshape(len(x), -1)),
    "convolutional": convolutional,
    "residual": residual,
}


def started(key: PRNGKeyArray, kind: str, width: int, layers: int) -> list[Array]:
    """The random weights of a network under He's initialisation."""
    if kind != FULLY:
        return draw(key, width, layers)
    return fully_connected_network(key, SIDE**2, width, OUTPUTS, layers, "he").params


def digits(study: Study) -> Iterator[tuple[Array, Array]]:
    """Training and test images of all digits, of SIDE² pixels and one length, and their labels."""
    images = load_images("mnist", study.data_dir)
    for rows in (slice(0, TRAIN), slice(-TEST, None)):
        x = area_means(images.pixels[rows].astype(float), SIDE)
        yield (
            jnp.asarray(LENGTH * on_sphere(x), jnp.float32),
            jnp.asarray(images.labels[rows], jnp.int32),
        )


def rows(study: Study) -> Rows:
    """A row for each kind of network, depth, width, number of epochs and seed."""
    train, test = digits(study)
    settings = [
        *itertools.product((DEPTH,), NETWORKS, LAYERS, WIDTHS, (EPOCHS,)),
        *((STOPPING, FULLY, n, m, epochs) for m, n in STOPPED for epochs in (SHORT, LONG)),
    ]
    for figure, kind, layers, width, epochs in settings:
        case = {"figure": figure, "kind": kind, "L": layers, "m": width, "epochs": epochs}
        for seed in range(SEEDS):
            weights, order = jax.random.split(jax.random.key(seed))
            start, rate = started(weights, kind, width, layers), jnp.float32(RATES[kind])
            found = trained(order, start, train, test, rate, epochs, NETWORKS[kind])
            losses = np.asarray(found.pop("losses"))
            yield case | {"seed": seed, **numbers(found), "loss": float(losses[-1])}


def of_depth(findings: Findings, frame: pd.DataFrame) -> None:
    """Figures 7 and 8: what the depth does to the widest networks."""
    few, many = LAYERS[0], LAYERS[-1]
    widest = frame[frame["m"] == WIDTHS[-1]]
    tables = {
        str(kind): part.pivot(index="seed", columns="L", values="end")
        for kind, part in widest.groupby("kind", sort=False)
    }
    accuracy = widest.groupby(["kind", "L"])["accuracy"].mean().unstack()[[few, many]]
    learned = accuracy.min(axis=1) >= LEARNED
    for kind, figure in (("convolutional", 7), ("residual", 8)):
        found = ratio(tables[kind], many, few)
        findings.add(
            f"{kind}, m = {WIDTHS[-1]}: depth hurts (figure {figure})",
            "𝒫 rises",
            str(found),
            within([found], 1, np.inf) if learned[kind] else "not decidable",
            f"𝒫 at L = {many} over that at {few}; test accuracy {accuracy.loc[kind, few]:.2f} and "
            f"{accuracy.loc[kind, many]:.2f}, of which both must be {LEARNED:g} to be judged",
        )
    both = pd.concat([tables[k][[few, many]] for k in ("convolutional", FULLY)], axis=1).dropna()
    pair = both.to_numpy().reshape(-1, 2, 2)
    apart = over_seeds(pair, lambda drawn: float(np.divide(*np.divide(*drawn.mean(0).T[::-1]))))
    findings.add(
        "depths are further apart than in fully connected networks (figure 7)",
        "much further",
        f"{apart} times as far",
        within([apart], 1, np.inf) if learned.drop("residual").all() else "not decidable",
        f"the ratio of L = {many} to {few} over that of fully connected networks, m = {WIDTHS[-1]}",
    )
    shallow = frame[(frame["kind"] == "residual") & (frame["L"] == few)]
    by_width = shallow.pivot(index="seed", columns="m", values="end")
    findings.add(
        f"residual, L = {few}: a peak in the width (figure 8)",
        "an insignificant one",
        f"{ratio(by_width, WIDTHS[-1], WIDTHS[0])} times the narrowest",
        "not decidable",
        f"widths of {WIDTHS[0]} to {WIDTHS[-1]} against unnamed ones: shown, not judged",
    )


def of_stopping(findings: Findings, frame: pd.DataFrame) -> None:
    """Figure 6: what further epochs change."""
    for width, layers in STOPPED:
        part = frame[(frame["m"] == width) & (frame["L"] == layers)]
        by = part.pivot(index="seed", columns="epochs", values=["accuracy", "loss", "end"])
        network = f"{FULLY}, m = {width}, L = {layers}"
        for name, of in (("test accuracy", "accuracy"), ("training loss", "loss")):
            gain = over_seeds(100 * (by[of][LONG] - by[of][SHORT]).to_numpy(), np.mean)
            findings.measure(
                f"{network}: {name} flat after epoch {SHORT} (figure 6)",
                "almost unchanged",
                gain,
                -FLAT,
                FLAT,
                f"change in hundredths, {by[of][SHORT].mean():.4f} at epoch {SHORT} to "
                f"{by[of][LONG].mean():.4f} at {LONG}",
            )
        findings.measure(
            f"{network}: 𝒫 flat after epoch {SHORT}",
            OURS,
            ratio(by["end"], LONG, SHORT),
            1 - STEADY,
            1 + STEADY,
            f"𝒫 at epoch {LONG} over that at {SHORT}",
        )


def run(study: Study) -> Outcome:
    """Ratios in the depth by kind of network, and what longer training changes."""
    every = pd.DataFrame(rows(study))
    # Weights can overflow behind dead rectifiers, at a finite loss.
    frame = every[np.isfinite(every[["loss", "kappa"]]).all(axis=1)]
    findings = Findings()
    usual, longer = (frame[frame["figure"] == figure] for figure in (DEPTH, STOPPING))
    of_depth(findings, usual)
    of_stopping(findings, longer)
    figure, axes = panels(len(NETWORKS), 0.8, together=True)
    for axis, (kind, part) in zip(axes, usual.groupby("kind", sort=False), strict=True):
        for colour, (layers, one) in enumerate(part.groupby("L")):
            lines(axis, one, "m", "end", f"L = {layers}", colour)
        axis.set(title=str(kind), xlabel="width m")
    axes[0].set_ylabel("P/ε on test images")
    axes[0].legend(fontsize="x-small")
    groups = frame.groupby(["figure", "kind", "epochs", "L", "m"], sort=False)
    summary = groups[["start", "end", "kappa", "accuracy", "loss"]].mean()
    summary.insert(0, "seeds", groups.size())
    return Outcome(
        every,
        figure,
        {"side": SIDE, "train": TRAIN, "test": TEST, "epochs": EPOCHS, "seeds": SEEDS},
        (
            f"All ten digits in {SIDE} × {SIDE} pixels, {TRAIN} images, {EPOCHS} epochs of batches "
            "of 32, He's initialisation. Residual networks have normalised blocks of two "
            "convolutions, no strides. ResNet-18 and -34, larger images and more of them take an "
            "accelerator (--full).",
            f"Of {len(every)} trainings {len(every) - len(frame)} diverged and are left out.",
        ),
        tuple(findings),
        summary.round(4).reset_index(),
    )
