"""The accuracy of a network under attacks that outlive a stop, AutoAttack first."""

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from numbers import Real
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Int, PyTree

from attacks import APGD, FAB, FMN, PGD, Robustness, SquareAttack, Stepwise, attack_all, autoattack
from attacks.ensemble import BATCH, DRAWS, Report
from attacks.errors import AttackError
from attacks.versions import targeted
from ntkscore.compiler import compiler_options
from ntkscore.errors import InputError, check_choice
from ntkscore.grams import in_full_precision
from ntkscore.kernels.checks import check_range, check_same_network
from ntkscore.kernels.network import as_it_is_now, checked_model
from ntkscore.model import Model
from ntkscore.results.checkpoints import ArrayFolder, fingerprint
from ntkscore.task import check_classes, check_labels
from ntkscore.text import format_rho
from ntkscore.trace.compiled import logits_of
from ntkscore.trace.content import classes_of
from ntkscore.trace.coupling import check_coupling, jitted, logits_alone
from ntkscore.trace.parameters import dtype_of_weights
from ntkscore.training.steps import as_pixels

TARGETED = ("apgd-t", "fab-t")
"""Attacks of the standard version that stand by themselves too."""
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
ATTACK_NAMES = (*VERSIONS, *SINGLE, *TARGETED)
ANSWERS = "logits of the first images"
"""Name of what is kept to know the network again."""
RADII = {"linf": 8 / 255, "l2": 0.5, "l1": 12.0}
"""The usual radius of each norm, as RobustBench and the authors have them."""


def attacks_named(
    name: str, rho: float, norm: str, shape: Sequence[int], classes: int
) -> dict[str, Stepwise]:
    """The attacks that a name stands for, in their order; the radius is in pixel units."""
    check_choice(name, ATTACK_NAMES)
    check_choice(norm, tuple(RADII))
    try:
        if name in SINGLE:
            found = {name: SINGLE[name](rho, norm)}
        elif name in TARGETED:
            found = {name: targeted(rho, norm, classes)[name]}  # type: ignore[arg-type]
        else:
            version: Any = VERSIONS[name]
            found = autoattack(rho, norm, version, classes)  # type: ignore[arg-type]
        for each in found.values():
            each.check(shape, classes)
    except AttackError as error:
        raise InputError(*error.args) from error
    return found


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
        InputError: if images, labels or a choice do not fit, there are too few classes, logits
            depend on other images, the network takes no single image, or the folder is of another
            evaluation.

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
    check_choice(attack, ATTACK_NAMES)
    chance = attack == f"{AUTOATTACK}-rand"
    apply, params, images, labels, classes, dtype = Subject.of(model, images, labels, chance)
    if isinstance(rho, bool) or not isinstance(rho, Real | np.ndarray | Array | None):
        raise InputError("a number as the radius", repr(rho), "write 8 / 255")
    rho = RADII.get(norm, 0.0) if rho is None else float(rho)
    chosen = attacks_named(attack, rho, norm, images.shape[1:], classes)
    # By NumPy, whose quotients are rounded as IEEE 754 says on every device.
    pixels = images.astype(dtype) / (255 if images.dtype == np.uint8 else 1)
    store = None
    if out is not None:
        leaves = jax.tree.leaves(params)
        described = {
            "attack": attack,
            "rho": rho,
            "norm": norm,
            "seed": seed,
            "batch": batch,
            "weights": fingerprint(leaves),
            "images": fingerprint([pixels, labels]),
        }
        store = ArrayFolder(Path(out), described)
        if not chance:
            logits = np.asarray(jax.jit(apply)(params, jnp.asarray(pixels[:BATCH])))
            if ANSWERS in store:
                check_same_network(store[ANSWERS]["logits"], logits, Path(out))
            else:
                store[ANSWERS] = {"logits": logits}
    how: dict[str, Any] = {"seed": seed, "batch": min(batch, max(len(labels), 1))}
    how |= {"draws": DRAWS if chance else 0, "store": store, "report": report}
    try:
        return attack_all(apply, params, pixels, labels, chosen, options=compiler_options(), **how)
    except AttackError as error:
        raise InputError(*error.args) from error


class Subject(NamedTuple):
    """A network and images of its classes, as attacks take them.

    Attributes:
        apply: logits of (params, images), of a network with chance of (params, images, key).
        images: uint8, or pixels in [0, 1].
        labels: classes, int32.
        dtype: the attacks' own: that of the weights, at least float32 for their small steps.
    """

    apply: Callable[..., Array]
    params: PyTree
    images: np.ndarray
    labels: np.ndarray
    classes: int
    dtype: DTypeLike

    @classmethod
    def of(
        cls,
        model: Model,
        images: np.ndarray | Array,
        labels: Int[np.ndarray | Array, " n"],
        chance: bool = False,
    ) -> "Subject":
        """Check that arguments of `robustness` fit each other; with chance, `apply` takes a key."""
        model = checked_model(model)
        images, labels = np.asarray(images), np.asarray(labels)
        if not len(labels) or labels.shape != images.shape[:1]:
            raise InputError(
                "at least one image, and a label for each",
                f"images of shape {images.shape} and labels of shape {labels.shape}",
                "give as many",
            )
        if images.dtype != np.uint8:
            check_range(images)
        if model.coupled:
            raise InputError(
                "a model whose images do not depend on each other",
                "one with coupled=True",
                "use its running statistics",
            )
        own = dtype_of_weights(model.params)
        dtype = jnp.float32 if jnp.finfo(own).bits < 32 else own
        some = as_pixels(images[:BATCH], own)
        if chance:
            # A function of its own at each call, since what the model's captures may have changed.
            classes, function = _classes_with_chance(model, some), model.apply
            logits = lambda *given: function(*given)  # noqa: E731
        else:
            model, classes = as_it_is_now(model, some)
            logits = logits_of(model, jax.ShapeDtypeStruct(some.shape[1:], own))
            if model.passes is None or logits is not model.apply:
                alone = logits_alone(jitted(model.apply), model.params, some[0])
                check_coupling(model.apply, model.params, alone[None], some)
        check_classes(classes)
        check_labels(labels, len(images), classes)

        apply = _with_casts(logits, own, dtype)
        return cls(apply, model.params, images, labels.astype(np.int32), classes, dtype)


@lru_cache(maxsize=16)
def _with_casts(logits: Callable[..., Array], own: DTypeLike, dtype: DTypeLike) -> Any:
    """Logits in the attacks' type of a network that computes in its own."""

    def apply(params: PyTree, x: Array, *key: Array) -> Array:
        return logits(params, x.astype(own), *key).astype(dtype)

    return apply


def _classes_with_chance(model: Model, points: Array) -> int:
    """How many logits a network that takes a key has; refuses one that takes no single point."""
    key = jax.random.key(0)
    try:
        logits = jax.eval_shape(model.apply, model.params, points, key)
    except TypeError as error:
        raise InputError(
            f"a model with apply(params, images, key) for {AUTOATTACK}-rand",
            str(error),
            f"choose {AUTOATTACK}, which is for networks without chance",
        ) from error
    jax.eval_shape(partial(logits_alone, model.apply), model.params, points[0], key)
    return classes_of(logits, len(points))


def claim(
    found: Robustness,
    rho: float,
    norm: str,
    name: str,
    dataset: str,
    attack: str = AUTOATTACK,
) -> dict[str, Any]:
    """A result in the form of RobustBench's `model_info` files.

    Returns:
        JSON types; accuracies in percent, that of AutoAttack as `autoattack_acc` and that of
        another attack under its own name; and ε as a fraction of 255 where it is whole.

    Example:
        >>> import json
        >>> right = {"clean": np.ones(4, bool), "square": np.array([1, 0, 0, 1], bool)}
        >>> found = Robustness(right, np.zeros((4, 2)), [])
        >>> print(json.dumps(claim(found, 8 / 255, "linf", "cell 2581", "cifar10")))
        {"name": "cell 2581", "dataset": "cifar10", "attack": "autoattack", "eps": "8/255", ...
    """
    accuracies = list(found.accuracies.values())
    return {
        "name": name,
        "dataset": dataset,
        "attack": attack,
        "eps": format_rho(rho) if norm == "linf" else f"{rho:g}",
        "clean_acc": f"{accuracies[0] * 100:.2f}",
        f"{AUTOATTACK if attack in VERSIONS else attack}_acc": f"{accuracies[-1] * 100:.2f}",
        "images": len(found.images),
        "flags": found.flags,
    }
