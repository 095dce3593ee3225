"""S2: perturbation stability of trained networks by width, depth and initialisation."""

from collections.abc import Callable
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
from jax import lax
from jaxtyping import Array, PRNGKeyArray, PyTree
from scipy.optimize import curve_fit

from experiments.plotting import COLOURS, panels
from experiments.study import LEARNED, Outcome, Study
from experiments.theory.networks import fully_connected, fully_connected_network
from experiments.theory.seeds import log_slope, over_seeds
from experiments.theory.stability import second_moment
from experiments.theory.studies.setting import Rows, curve, numbers
from experiments.theory.studies.statistics import Findings, ratio
from experiments.theory.tasks import on_sphere
from ntkscore.data.images import load_images
from ntkscore.measures.perturbations import displacements

DIMENSION, OUTPUTS, TRAIN, TEST = 784, 10, 2000, 600
LAYERS, SEEDS, EPOCHS, BATCH = (2, 4, 6, 8), 5, 8, 32
WIDTHS = {
    "ntk": (8, 16, 32, 64, 128, 256, 512),
    "he": (16, 64, 256),
    "lecun": (16, 64, 256),
}
FURTHER = (("he", 4, 1024), ("lecun", 4, 1024))
"""Initialisations, layers and widths beside the grid."""
MORE = dict.fromkeys((("he", 4, 16), ("he", 4, 1024)), 30)
"""Numbers of seeds where a ratio lies near 1."""
LENGTH = 9.2
"""Length of points under He's and LeCun's initialisations: the mean of MNIST's in [0, 1]."""
RATE = 0.05
"""Learning rate there; 1/m under the NTK's, on points of length 1."""
LAZY = 0.1
"""Largest relative change of a layer's weights that counts as lazy."""
FULL = {
    "TRAIN": 60_000,
    "TEST": 10_000,
    "EPOCHS": 50,
    "LAYERS": (2, 4, 6, 8, 10),
    "WIDTHS": {
        "ntk": tuple(2**i for i in range(3, 15)),
        "he": tuple(2**i for i in range(4, 15)),
        "lecun": tuple(2**i for i in range(4, 15)),
    },
    "FURTHER": (),
    "MORE": {},
}


@partial(jax.jit, static_argnames=("epochs", "network"))
def trained(
    key: PRNGKeyArray,
    weights: PyTree,
    train: tuple[Array, Array],
    test: tuple[Array, Array],
    rate: Array,
    epochs: int,
    network: Callable[[PyTree, Array], Array] = fully_connected,
) -> dict[str, Array]:
    """Stability before and after training, of the change too; how far the weights have come."""
    (x, y), (z, labels) = train, test
    order, ball = jax.random.split(key)
    steps = len(x) // BATCH

    def loss(w: PyTree, rows: Array) -> Array:
        logits = network(w, x[rows])
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(logits, y[rows]))

    def epoch(w: PyTree, key: PRNGKeyArray) -> tuple[PyTree, Array]:
        batches = jax.random.permutation(key, len(x))[: steps * BATCH].reshape(steps, BATCH)

        def step(w: PyTree, rows: Array) -> tuple[PyTree, Array]:
            value, gradient = jax.value_and_grad(loss)(w, rows)
            return jax.tree.map(lambda a, g: a - rate * g, w, gradient), value

        w, losses = lax.scan(step, w, batches)
        return w, jnp.mean(losses)

    end, losses = lax.scan(epoch, weights, jax.random.split(order, epochs))
    change = [
        jnp.linalg.norm(a - b) / jnp.linalg.norm(b) for a, b in zip(end, weights, strict=True)
    ]
    right = jnp.argmax(network(end, z), 1) == labels
    changed = lambda z: network(end, z) - network(weights, z)  # noqa: E731
    return {
        "start": jnp.mean(displacements(partial(network, weights), z, ball)),
        "end": jnp.mean(displacements(partial(network, end), z, ball)),
        "change": jnp.mean(displacements(changed, z, ball)),
        "kappa": jnp.max(jnp.stack(change)),
        "accuracy": jnp.mean(right),
        "losses": losses,
    }


def rows(study: Study) -> Rows:
    """A row for each initialisation, depth, width and seed."""
    images = load_images("mnist", study.data_dir)
    x = on_sphere(images.pixels.reshape(len(images.labels), -1)).astype(np.float32)
    y = np.asarray(images.labels, np.int32)
    first, last = slice(0, TRAIN), slice(len(x) - TEST, len(x))
    settings = [(name, n, m) for name, widths in WIDTHS.items() for n in LAYERS for m in widths]
    for name, layers, width in [*settings, *FURTHER]:
        length, rate = (1.0, 1 / width) if name == "ntk" else (LENGTH, RATE)
        train, test = ((jnp.asarray(length * x[s]), jnp.asarray(y[s])) for s in (first, last))
        sizes = (name, DIMENSION, width, OUTPUTS, layers)
        for seed in range(MORE.get((name, layers, width), SEEDS)):
            weights, key = jax.random.split(
                jax.random.fold_in(jax.random.key(seed), width * layers)
            )
            model = fully_connected_network(weights, DIMENSION, width, OUTPUTS, layers, name)
            found = trained(key, model.params, train, test, jnp.float32(rate), EPOCHS)
            losses = np.asarray(found.pop("losses"))
            yield {
                "initialisation": name,
                "L": layers,
                "m": width,
                "seed": seed,
                "rms": second_moment(*sizes) ** 0.5,
                **numbers(found),
                "first loss": float(losses[0]),
                "loss": float(losses[-1]),
                "falling": float(losses[-1] / losses[-2]),
            }


def by_seed(
    frame: pd.DataFrame, name: str, over: str, of: str = "end", **held: int
) -> pd.DataFrame:
    """Stability after training, or another quantity: a row by seed, a column by width or depth."""
    part = frame[frame["initialisation"] == name]
    for column, value in held.items():
        part = part[part[column] == value]
    return part.pivot(index="seed", columns=over, values=of)


def shape(part: pd.DataFrame) -> tuple[str, float, float]:
    """The theorem's shape fitted to all depths, its R², and that of a parabola for each depth."""
    means = part.groupby(["L", "m"])[["end", "rms"]].mean().reset_index()
    depth, width = means["L"].to_numpy(float), means["m"].to_numpy(float)
    values = (means["end"] / means["rms"]).to_numpy()

    def theorem(
        at: np.ndarray | tuple[np.ndarray, np.ndarray], a: float, b: float, k: float
    ) -> np.ndarray:
        cubed, m = at
        return a + b * np.sqrt(cubed * m) * np.exp(-k * m / cubed)

    spread = np.sum((values - values.mean()) ** 2)
    (a, b, k), _ = curve_fit(
        theorem, (depth**3, width), values, (values.min(), 0.1, 0.5), maxfev=20_000
    )
    residual = np.sum((values - theorem((depth**3, width), a, b, k)) ** 2)
    free = 0.0
    for _, one in means.assign(value=values).groupby("L"):
        logs, measured = np.log(one["m"]), one["value"]
        fitted = np.polyval(np.polyfit(logs, measured, min(2, len(one) - 1)), logs)
        free += float(np.sum((measured - fitted) ** 2))
    words = f"A = {a:.2f}, B = {b:.3f}, κ = {k:.2f}"
    return words, float(1 - residual / spread), float(1 - free / spread)


def of_change(findings: Findings, frame: pd.DataFrame) -> None:
    """Lemma 4: training would change the gradient by no more than √m e^(−m/L³) of its size."""
    layers, wide, narrow = LAYERS[1], WIDTHS["ntk"][-1], 128
    found = ratio(by_seed(frame, "ntk", "m", of="change", L=layers), wide, narrow)
    printed = float((wide / narrow) ** 0.5 * np.exp((narrow - wide) / layers**3))
    findings.measure(
        f"ntk, L = {layers}: the gradient's change in training falls with the width (lemma 4)",
        f"to {printed:.3f} of that at m = {narrow}" if wide > narrow else "falls",
        found,
        -np.inf,
        printed,
        f"𝒫 of f_T − f_0, m = {wide} over {narrow}. As ∇f(x)·x = f(x) it is at least of the "
        "outputs' own change, which does not vanish in wide networks",
    )


def peak_over(rows: np.ndarray, place: int) -> float:
    """The largest mean between both ends, over that at one of them; of rows by seed."""
    means = rows.mean(0)
    return float(means[1:-1].max() / means[place])


def run(study: Study) -> Outcome:
    """Peaks in the width and trends in the depth, each by its interval over seeds."""
    frame = pd.DataFrame(rows(study))
    findings, peaks = Findings(), {}
    for layers in LAYERS:
        table = by_seed(frame, "ntk", "m", L=layers)
        peaks[layers] = int(table.mean().idxmax())
        if layers == 2:
            continue
        accuracy = by_seed(frame, "ntk", "m", "accuracy", L=layers).mean()
        table = table.loc[:, accuracy >= LEARNED]
        what, paper = f"ntk, L = {layers}: 𝒫 rises with the width, then falls", "a peak between"
        among = f"of widths with a test accuracy of {LEARNED:g} and more"
        if table.shape[1] < 3:
            findings.add(what, paper, f"{table.shape[1]} widths", "not decidable", among)
            continue
        # Each draw of seeds has its own peak; a largest value still leans upwards.
        ends, inner = table.columns[[0, -1]], table.mean().iloc[1:-1].idxmax()
        sides = {
            f"m = {m}": over_seeds(table.to_numpy(), partial(peak_over, place=place))
            for m, place in zip(ends, (0, -1), strict=True)
        }
        why = f"the largest 𝒫 between, at m = {inner}, over that at both ends"
        findings.measure(what, paper, sides, 1, np.inf, f"{why}, {among}")
    judged = [n for n in LAYERS if n > 2]
    tables = np.stack([by_seed(frame, "ntk", "m", L=n).to_numpy() for n in judged], 1)
    at = np.array(WIDTHS["ntk"], float)
    growth = over_seeds(
        tables, lambda drawn: log_slope(np.array(judged, float), at[drawn.mean(0).argmax(1)])
    )
    words = ", ".join(f"L = {n}: {m}" for n, m in peaks.items())
    for what, paper, low, high in (
        ("with the depth", "to larger ones", 0, np.inf),
        ("as L³", "exponent 3", 2.5, 3.5),
    ):
        findings.measure(
            f"ntk: the peak moves to larger widths {what}",
            paper,
            growth,
            low,
            high,
            f"exponent of L, L ≥ {judged[0]}; peaks at m: {words}, the first at the smallest width",
        )
    few, many = LAYERS[0], 8
    trends = (
        ("ntk: depth hurts, m = 128", by_seed(frame, "ntk", "L", m=128), many, few, True),
        ("he: depth hurts, m = 256", by_seed(frame, "he", "L", m=256), many, few, True),
        ("lecun: depth helps, m = 256", by_seed(frame, "lecun", "L", m=256), many, few, False),
        ("he: width helps, L = 4", by_seed(frame, "he", "m", L=4), 1024, WIDTHS["he"][0], False),
    )
    for what, table, end, start, up in trends:
        found = ratio(table, end, start)
        findings.measure(
            what,
            "𝒫 rises" if up else "𝒫 falls",
            found,
            1 if up else -np.inf,
            np.inf if up else 1,
            f"𝒫 at {end} over that at {start}",
        )
    of_change(findings, frame)
    words, fitted, free = shape(frame[(frame["initialisation"] == "ntk") & frame["L"].isin(judged)])
    figure, axes = panels(len(WIDTHS), 0.8)
    for axis, (name, part) in zip(axes, frame.groupby("initialisation", sort=False), strict=True):
        for colour, (layers, one) in enumerate(part.groupby("L")):
            means = one.groupby("m")[["start", "end"]].mean()
            curve(axis, means["end"], f"L = {layers}", colour)
            axis.loglog(means.index, means["start"], "--", lw=0.8, color=COLOURS[colour])
        axis.set(title=str(name), xlabel="width m")
    axes[0].set_ylabel("P/ε on test images")
    axes[0].legend(fontsize="x-small")
    summary = frame.groupby(["initialisation", "L", "m"], sort=False)[
        ["start", "end", "kappa", "accuracy", "loss"]
    ].mean()
    largest = frame.groupby(["initialisation", "m"], sort=False)["kappa"].max()
    lazy = largest[largest <= LAZY].reset_index().groupby("initialisation")["m"].min()
    return Outcome(
        frame,
        figure,
        {"train": TRAIN, "test": TEST, "epochs": EPOCHS, "batch": BATCH, "seeds": SEEDS},
        (
            f"All ten digits, {TRAIN} images, {EPOCHS} epochs; dashed lines are the same networks "
            "untrained. Smaller is more robust.",
            f"Lazy, at every depth no layer's weights changed by more than {LAZY:.0%}: "
            + (", ".join(f"{name} from m = {m} on" for name, m in lazy.items()) or "none")
            + "; the others are not, whatever the theorem supposes.",
            f"The theorem's shape A + B √(L³m) e^(−κm/L³), in units of the random network's root "
            f"mean square, ntk, L ≥ {judged[0]}: {words}, R² {fitted:.2f}; a parabola in log m for "
            f"each depth has {free:.2f}.",
        ),
        tuple(findings),
        summary.round(3).reset_index(),
    )
