"""Accuracies of a network, clean, attacked and on corrupted images, and their consistency."""

import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from numbers import Integral
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Bool, Int, PyTree

from attacks import Attack, SquareAttack, Victim, fgsm
from attacks.core import random_array
from attacks.steps import is_right
from ntkscore.compiler import compiler_options
from ntkscore.errors import UNREADABLE, InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.model import Model
from ntkscore.training.robustness import Subject
from ntkscore.training.steps import as_pixels

log = logging.getLogger("ntkscore")
Network = Callable[[Array], Array]
"""Logits of images, as a function."""
Answer = Callable[[Network, Array, Array, Array, Array], Array]
"""A function of (network, images, labels, key, ρ) that returns logits of attacked images."""
BATCH = 250
RADII = (3, 8, 16, 32, 64, 128, 255)
"""Radii of PGD in grey levels; FGSM and the uniform draws use the first two."""
METRICS = ("clean", "fgsm", "pgd", "draws")
PGD_STEPS = 20
DRAWS = 100
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
SEVERITIES = 5
CHECKS = {
    "fgsm_not_below_pgd": "FGSM's accuracy is at least PGD's, 3/255 and 8/255",
    "square_not_below_pgd": "Square's accuracy is at least PGD's, at its radius",
    "pgd_255_is_zero": "PGD with 255/255 leaves nothing right",
    "pgd_falls": "PGD's accuracy does not rise with its radius",
    "draws_not_below_pgd": "the best of 100 uniform draws never beats PGD",
}
"""Signs that gradients are not masked. Table 4 of the paper words the third and the fourth as
symptoms of masked gradients; its data show these.

Source: Wu et al. (2024), "Robust NAS under adversarial training", tables 4 and 5; Athalye et al.
(2018), "Obfuscated gradients give a false sense of security".
"""


@in_full_precision
def evaluate(
    model: Model,
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
    *,
    queries: int = 0,
    radii: Sequence[int] = RADII,
    metrics: Collection[str] = METRICS,
    corruptions: Path | None = None,
    seed: int = 0,
    report: Callable[[str], None] | None = None,
) -> pd.DataFrame:
    """Accuracies of a network at its weights, under the attacks of the paper.

    `ntkscore.robustness` has AutoAttack.

    Args:
        model: logits of pixels in [0, 1], each image by itself.
        images: (N, height, width, colours), uint8 or pixels in [0, 1].
        labels: classes.
        queries: number for the Square attack at 3/255, 5,000 in the paper; 0 leaves it out.
        radii: of PGD in `linf`, in grey levels.
        metrics: which of `METRICS`.
        corruptions: folder with the official files of CIFAR-10-C; left out if None.
        seed: of random starts, draws and squares.
        report: called with the name of what is computed.

    Returns:
        A row for each accuracy, fraction right: `metric`, `rho`, `severity`, `class` (−1 for all),
        `value`; and one for each of `CHECKS` that can be decided, 1 where it holds.

    Raises:
        InputError: if images or labels do not fit the network, a metric is unknown, a radius is
            none in grey levels, or a corrupted file is not of the official form.

    Source: Wu et al. (2024), section 3.1, tables 4 to 6.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x, y = rng.uniform(size=(20, 4, 4, 1)), np.arange(20) % 2
        >>> weights = jnp.asarray(rng.normal(size=(16, 2)), jnp.float32)
        >>> flat = Model(lambda w, x: x.reshape(len(x), -1) @ w, weights)
        >>> rows = evaluate(flat, x, y, radii=(3, 8))
        >>> rows[rows["class"] == -1]["metric"].tolist()[:5]
        ['clean', 'fgsm', 'fgsm', 'pgd', 'pgd']
    """
    if corruptions is not None:
        _array(corruptions / "labels.npy")
    report = report or (lambda name: None)
    how = {"queries": queries, "radii": radii, "metrics": metrics, "seed": seed, "report": report}
    masks = rights(model, images, labels, **how)
    rows = [row for key, right in masks.items() for row in _rows(*key, right, np.asarray(labels))]
    rows += [
        {"metric": name, "rho": np.nan, "severity": 0, "class": -1, "value": float(holds)}
        for name, holds in checks({key: float(r.mean()) for key, r in masks.items()}).items()
    ]
    if corruptions is not None:
        rows += list(_corrupted(Subject.of(model, images, labels), corruptions, report))
    return pd.DataFrame(rows)


@in_full_precision
def rights(
    model: Model,
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
    *,
    queries: int = 0,
    radii: Sequence[int] = RADII,
    metrics: Collection[str] = METRICS,
    seed: int = 0,
    report: Callable[[str], None] = lambda name: None,
) -> dict[tuple[str, int], Bool[np.ndarray, " n"]]:
    """Which images a network classifies correctly, by attack and its radius in grey levels.

    Masks (n,) for ("clean", 0), ("fgsm", 3), ("pgd", 8) and so on, whose means are the accuracies
    of `evaluate`; from them come paired differences of two attacks, image by image.
    """
    of = Subject.of(model, images, labels)
    for radius in radii:
        if not isinstance(radius, Integral) or not 0 < radius <= 255:
            raise InputError(
                "radii in whole grey levels from 1 to 255", repr(radius), "write 8 for 8/255"
            )
    for metric in metrics:
        check_choice(metric, METRICS)
    if not isinstance(queries, Integral) or queries < 0:
        raise InputError("a number of queries, 0 for none", repr(queries), "5000 is usual")
    near = [radius for radius in radii if radius in RADII[:2]]
    found: dict[tuple[str, int], Bool[np.ndarray, " n"]] = {}
    for metric, rhos in zip(METRICS, ((0,), near, radii, near), strict=True):
        classify = _classifier(of.apply, ANSWERS[metric], seed)
        for radius in rhos if metric in metrics else ():
            report(f"{metric} {radius}/255" if radius else metric)
            found[metric, radius] = classify(of, radius / 255)
    if queries:
        report(f"Square 3/255, {queries} queries")
        found["square", 3] = _classifier(of.apply, _square(queries), seed)(of, 3 / 255)
    return found


def checks(accuracies: dict[tuple[str, int], float]) -> dict[str, bool]:
    """The outcome of each of `CHECKS` that accuracies by metric and grey levels can decide.

    Example:
        >>> checks({("pgd", 3): 0.5, ("pgd", 8): 0.6, ("fgsm", 3): 0.5})
        {'fgsm_not_below_pgd': True, 'pgd_falls': False}
    """
    pgd = {radius: value for (metric, radius), value in accuracies.items() if metric == "pgd"}
    found = {}
    for name, metric in (
        ("fgsm_not_below_pgd", "fgsm"),
        ("square_not_below_pgd", "square"),
        ("draws_not_below_pgd", "draws"),
    ):
        both = [r for m, r in accuracies if m == metric and r in pgd]
        if both:
            found[name] = all(accuracies[metric, r] >= pgd[r] for r in both)
    if 255 in pgd:
        found["pgd_255_is_zero"] = pgd[255] == 0
    if len(pgd) > 1:
        ordered = [pgd[radius] for radius in sorted(pgd)]
        found["pgd_falls"] = all(a >= b for a, b in itertools.pairwise(ordered))
    return {name: found[name] for name in CHECKS if name in found}


def _rows(
    metric: str, radius: int, right: Bool[np.ndarray, " n"], labels: np.ndarray
) -> Iterator[dict[str, object]]:
    row = {"metric": metric, "rho": radius / 255, "severity": 0}
    yield {**row, "class": -1, "value": float(right.mean())}
    for label in np.unique(labels):
        yield {**row, "class": int(label), "value": float(right[labels == label].mean())}


def _clean(network: Network, x: Array, y: Array, key: Array, rho: Array) -> Array:
    return network(x)


def _fgsm(network: Network, x: Array, y: Array, key: Array, rho: Array) -> Array:
    return network(fgsm(rho)(Victim(network, y), x))


def _pgd(network: Network, x: Array, y: Array, key: Array, rho: Array) -> Array:
    attack = Attack(rho, PGD_STEPS, 2.5 * rho / PGD_STEPS, random_start=True)
    return network(attack(Victim(network, y), x, key))


def _draws(network: Network, x: Array, y: Array, key: Array, rho: Array) -> Array:
    """Logits at a uniform draw of the ball that is classified wrongly, where there is one."""

    def one(i: Array | int, answer: Array) -> Array:
        own = jax.random.fold_in(key, i)
        noise = random_array(jax.random.uniform, own, x.shape, x.dtype, -1, 1)
        logits = network(jnp.clip(x + rho * noise, 0, 1))
        return jnp.where(is_right(answer, y)[:, None], logits, answer)

    return jax.lax.fori_loop(1, DRAWS, one, one(0, jax.nn.one_hot(y, network(x).shape[1])))


def _square(queries: int) -> Answer:
    return lambda network, x, y, key, rho: network(
        SquareAttack(3 / 255, queries=queries)(Victim(network, y), x, key)
    )


ANSWERS: dict[str, Answer] = {"clean": _clean, "fgsm": _fgsm, "pgd": _pgd, "draws": _draws}


def _classifier(
    apply: Callable[..., Array], answer: Answer, seed: int
) -> Callable[..., Bool[np.ndarray, " n"]]:
    """A function from a `Subject` and ρ to the images whose logits of an `Answer` are right.

    It goes batch by batch. Radii are data, so that one program serves all radii of an attack.
    Logits that are not finite are not right, and a warning says how many there are.
    """

    @partial(jax.jit, compiler_options=compiler_options())
    def right(params: PyTree, x: Array, y: Array, key: Array, rho: Array) -> Array:
        logits = answer(partial(apply, params), x, y, key, rho)
        return jnp.stack([is_right(logits, y), jnp.isfinite(jnp.max(logits, 1))])

    def classify(of: Subject, rho: float = 0.0) -> Bool[np.ndarray, " n"]:
        found, count = [], len(of.labels)
        for start in range(0, count, BATCH):
            rows = np.arange(start, min(start + BATCH, count))
            # The last batch repeats images to fill up, so that one program serves all batches.
            filled = np.resize(rows, min(BATCH, count))
            mask = right(
                of.params,
                as_pixels(of.images[filled], of.dtype),
                jnp.asarray(of.labels[filled], jnp.int32),
                jax.random.fold_in(jax.random.key(seed), start),
                jnp.asarray(rho, of.dtype),
            )
            found.append(np.asarray(mask)[:, : len(rows)])
        mask, finite = np.concatenate(found, 1)
        if not finite.all():
            log.warning(
                "the logits of %d of %d images are NaN or infinite, and count as misclassified",
                *(np.sum(~finite), len(finite)),
            )
        return mask

    return classify


def _corrupted(
    of: Subject, folder: Path, report: Callable[[str], None]
) -> Iterator[dict[str, object]]:
    """Accuracies on CIFAR-10-C, whose files hold 10,000 images of each severity in turn."""
    classify = _classifier(of.apply, _clean, 0)
    labels = _array(folder / "labels.npy")
    count, rest = divmod(len(labels), SEVERITIES)
    if rest or labels.ndim != 1:
        raise InputError(
            f"labels for {SEVERITIES} severities in {folder / 'labels.npy'}",
            f"the shape {labels.shape}",
            "get the official files again",
        )
    for name in CORRUPTIONS:
        report(name.replace("_", " "))
        images = _array(folder / f"{name}.npy")
        wanted = (len(labels), *of.images.shape[1:])
        if images.shape != wanted or images.dtype != np.uint8:
            raise InputError(
                f"uint8 of shape {wanted} in {folder / name}.npy",
                f"{images.dtype} of shape {images.shape}",
                "get the official file again",
            )
        right = classify(of._replace(images=images, labels=labels))
        for severity, part in enumerate(right.reshape(SEVERITIES, count), 1):
            row = {"metric": name, "rho": np.nan, "severity": severity, "class": -1}
            yield {**row, "value": float(part.mean())}


def _array(path: Path) -> np.ndarray:
    try:
        return np.load(path, allow_pickle=False, mmap_mode="r")
    except UNREADABLE as error:
        raise InputError(
            f"an array in {path}", f"but reading it failed ({error})", "get the official file"
        ) from error
