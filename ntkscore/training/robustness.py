"""The accuracy of a network under attacks that outlive a stop, AutoAttack first."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PyTree

from attacks import APGD, FAB, FMN, PGD, Robustness, SquareAttack, Stepwise, attack_all, autoattack
from attacks.ensemble import BATCH, DRAWS, Report
from ntkscore.data.images import as_pixels
from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.kernels.checks import check_range
from ntkscore.model import Model
from ntkscore.results.checkpoints import ArrayFolder, fingerprint
from ntkscore.run.devices import compiler_options
from ntkscore.trace.logits import logits_of
from ntkscore.trace.parameters import dtype_of_weights

AUTOATTACK = "autoattack"
VERSIONS = {AUTOATTACK: "standard", f"{AUTOATTACK}-plus": "plus", f"{AUTOATTACK}-rand": "rand"}
SINGLE: dict[str, Callable[..., Stepwise]] = {
    "apgd-ce": APGD,
    "apgd-dlr": partial(APGD, loss="dlr"),
    "apgd-margin": partial(APGD, loss="margin"),
    "pgd": partial(PGD, restarts=10),
    "cw": partial(PGD, restarts=10, loss="margin"),
    "fab": FAB,
    "fmn": FMN,
    "square": partial(SquareAttack, rescale=False),
}
TARGETED = ("apgd-t", "fab-t")
"""Attacks of the standard version that stand by themselves too."""
ATTACK_NAMES = (*VERSIONS, *SINGLE, *TARGETED)
RADII = {"linf": 8 / 255, "l2": 0.5, "l1": 12.0}
"""The usual radius of each norm, as RobustBench and the authors have them."""


def attacks_named(name: str, rho: float, norm: str, classes: int) -> dict[str, Stepwise]:
    """The attacks that a name stands for, in their order.

    Args:
        name: one of `ATTACK_NAMES`.
        rho: radius, in pixel units.
        norm: `linf`, `l2` or `l1`.
        classes: of the network.

    Raises:
        InputError: if a choice is unknown, or the network has too few classes.
    """
    check_choice(name, ATTACK_NAMES)
    check_choice(norm, tuple(RADII))
    try:
        if name in SINGLE:
            return {name: SINGLE[name](rho, norm)}
        version: Any = VERSIONS.get(name, "standard")
        found = autoattack(rho, norm, version, classes)  # type: ignore[arg-type]
    except ValueError as error:
        raise InputError(str(error)) from error
    return {name: found[name]} if name in TARGETED else found


@in_full_precision
def robustness(
    model: Model,
    images: np.ndarray | Array,
    labels: Int[np.ndarray | Array, " n"],
    attack: str = AUTOATTACK,
    rho: float | None = None,
    norm: str = "linf",
    *,
    seed: int = 0,
    batch: int = BATCH,
    out: Path | str | None = None,
    report: Report | None = None,
) -> Robustness:
    """Which images a network still classifies correctly under attacks; by default AutoAttack.

    AutoAttack runs APGD on the cross-entropy, targeted APGD, targeted FAB and Square with 5,000
    queries, each on the images that the attacks before have not changed to another class.

    Args:
        model: logits of pixels in [0, 1], each image by itself; a normaliser is inside of it.
        images: (N, height, width, colours), uint8 or pixels in [0, 1].
        labels: classes.
        attack: `autoattack`, `autoattack-plus`, with five restarts and untargeted attacks;
            `autoattack-rand`, for a model whose `apply` takes a key as its third argument; or one
            of `apgd-ce`, `apgd-dlr`, `apgd-margin`, `apgd-t`, `pgd`, `cw`, `fab`, `fab-t`, `fmn`
            and `square`.
        rho: radius on the pixel scale [0, 1]; 8/255, 0.5 or 12 if left out, by the norm.
        norm: `linf`, `l2` or `l1`.
        seed: of random starts and squares.
        batch: images at a time.
        out: folder for what is done. The same call goes on from there, stopped anywhere, and
            returns the same to the bit.
        report: called after each piece with the attack, how many images it is done with, of how
            many, and the accuracy so far.

    Returns:
        The images that are right after each attack, the attacked images, and sentences on what
        makes the evaluation doubtful.

    Raises:
        InputError: if images or a choice do not fit, there are too few classes, or the folder is of
            another evaluation.

    Source: Croce and Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble
    of diverse parameter-free attacks".

    Example:
        >>> rng = np.random.default_rng(0)
        >>> x = rng.uniform(size=(20, 4, 4, 1))
        >>> weights = jnp.asarray(rng.normal(size=(16, 2)), jnp.float32)
        >>> flat = Model(lambda w, x: x.reshape(len(x), -1) @ w, weights)
        >>> labels = flat.logits(jnp.asarray(x, jnp.float32)).argmax(1)
        >>> found = robustness(flat, x, labels, "apgd-ce", rho=0.5)
        >>> found.accuracies["clean"], found.accuracies["apgd-ce"] < 1
        (1.0, True)
    """
    images, labels = checked_images(images, labels)
    if model.coupled:
        raise InputError(
            "a model whose images do not depend on each other",
            "one that normalises by its batch",
            "use its running statistics",
        )
    chance = attack == f"{AUTOATTACK}-rand"
    apply, classes, dtype = _logits(model, images.shape[1:], chance)
    rho = RADII.get(norm, 0.0) if rho is None else float(rho)
    chosen = attacks_named(attack, rho, norm, classes)
    pixels = np.asarray(as_pixels(images), dtype)
    store = None
    if out is not None:
        leaves = jax.tree.leaves(model.params)
        described = {
            "attack": attack,
            "rho": rho,
            "norm": norm,
            "seed": seed,
            "batch": batch,
            "weights": fingerprint(leaves),
            "images": fingerprint([pixels, np.asarray(labels)]),
        }
        store = ArrayFolder(Path(out), described)
    compiled = partial(jax.jit, compiler_options=compiler_options())
    how: dict[str, Any] = {"seed": seed, "batch": min(batch, max(len(labels), 1))}
    how |= {"draws": DRAWS if chance else 0, "store": store, "report": report}
    return attack_all(apply, model.params, pixels, labels, chosen, compile=compiled, **how)


def checked_images(
    images: np.ndarray | Array, labels: Int[np.ndarray | Array, " n"]
) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as arrays.

    Raises:
        InputError: if there are none, not as many, or values that are no pixels.
    """
    images, labels = np.asarray(images), np.asarray(labels)
    if not len(labels) or labels.shape != images.shape[:1]:
        raise InputError(
            "at least one image, and a label for each",
            f"images of shape {images.shape} and labels of shape {labels.shape}",
            "give as many",
        )
    if images.dtype != np.uint8:
        check_range(images)
    return images, labels


def _logits(
    model: Model, shape: tuple[int, ...], chance: bool
) -> tuple[Callable[..., Array], int, Any]:
    """The network's logits of (params, images), how many there are, and the images' dtype.

    The dtype is that of the weights, at least float32 for the attacks' small steps.
    """
    own = dtype_of_weights(model.params)
    dtype = jnp.float32 if jnp.finfo(own).bits < 32 else own
    point = jax.ShapeDtypeStruct(shape, own)
    logits = model.apply if chance else logits_of(model, point)

    def apply(params: PyTree, x: Array, *key: Array) -> Array:
        return logits(params, x.astype(own), *key).astype(dtype)

    keys = (jax.random.key(0),) if chance else ()
    one = jax.ShapeDtypeStruct((1, *shape), dtype)
    try:
        classes = jax.eval_shape(apply, model.params, one, *keys).shape[1]
    except TypeError as error:
        if not chance:
            raise
        raise InputError(
            f"a model with apply(params, images, key) for {AUTOATTACK}-rand",
            str(error),
            f"choose {AUTOATTACK}, which is for networks without chance",
        ) from error
    return apply, classes, dtype


def claim(
    found: Robustness, rho: float, norm: str, name: str, dataset: str, **more: Any
) -> dict[str, Any]:
    """A result in the form of RobustBench's `model_info` files.

    Args:
        found: by AutoAttack.
        rho, norm: of the ball.
        name: of the network.
        dataset: of the images.
        more: other entries, such as `architecture`.

    Returns:
        JSON types; accuracies in percent, and ε as a fraction of 255 where it is whole.

    Example:
        >>> import json
        >>> right = {"clean": np.ones(4, bool), "square": np.array([1, 0, 0, 1], bool)}
        >>> found = Robustness(right, np.zeros((4, 2)), [])
        >>> print(json.dumps(claim(found, 8 / 255, "linf", "cell 2581", "cifar10")))
        {"name": "cell 2581", "dataset": "cifar10", "eps": "8/255", "clean_acc": "100.00", ...
    """
    levels = rho * 255
    whole = norm == "linf" and abs(levels - round(levels)) < 1e-6
    accuracies = list(found.accuracies.values())
    return {
        "name": name,
        "dataset": dataset,
        "eps": f"{round(levels)}/255" if whole else f"{rho:g}",
        "clean_acc": f"{accuracies[0] * 100:.2f}",
        "autoattack_acc": f"{accuracies[-1] * 100:.2f}",
        "images": len(found.images),
        "flags": found.flags,
        **more,
    }
