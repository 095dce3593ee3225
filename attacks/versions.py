"""The attacks of AutoAttack, by version."""

from typing import Literal, get_args

from attacks.apgd import APGD
from attacks.errors import AttackError
from attacks.fab import FAB
from attacks.losses import FEWEST_CLASSES
from attacks.square import SquareAttack
from attacks.steps import BallNorm, Stepwise

Version = Literal["standard", "plus", "rand"]
VERSIONS: tuple[str, ...] = get_args(Version)
TARGETS, L1_TARGETS, RESTARTS = 9, 5, 5
QUERIES = 5000


def targeted(rho: float, norm: BallNorm, classes: int) -> dict[str, Stepwise]:
    """The two attacks of the standard version that aim at other classes in turn.

    Args:
        rho, norm, classes: as for `autoattack`.

    Example:
        >>> targeted(8 / 255, "linf", 3)["fab-t"].targets
        2
    """
    others = max(classes - 1, 1)
    return {
        "apgd-t": APGD(
            rho, norm, loss="dlr", targets=min(L1_TARGETS if norm == "l1" else TARGETS, others)
        ),
        "fab-t": FAB(rho, norm, targets=min(TARGETS, others)),
    }


def autoattack(
    rho: float, norm: BallNorm = "linf", version: Version = "standard", classes: int = 10
) -> dict[str, Stepwise]:
    """The attacks of a version of AutoAttack, in their order.

    Args:
        rho: radius of the ball, in pixel units.
        norm: of the ball.
        version: `standard`; `plus`, with five restarts and untargeted attacks too; or `rand`, for
            networks with chance.
        classes: of the network; of few the targeted attacks aim at all others.

    Raises:
        AttackError: if the version is unknown, or the classes too few for its losses.

    Source: Croce and Hein (2020), "Reliable evaluation of adversarial robustness with an ensemble
    of diverse parameter-free attacks", section 5; the authors' package for `l1`.

    Example:
        >>> list(autoattack(8 / 255))
        ['apgd-ce', 'apgd-t', 'fab-t', 'square']
    """
    if version not in VERSIONS:
        raise AttackError(f"the version {' or '.join(VERSIONS)}", repr(version), "choose one")
    fewest = FEWEST_CLASSES["dlr" if version == "rand" else "targeted dlr"]
    if classes < fewest:
        raise AttackError(
            f"at least {fewest} classes for the version {version}, whose loss compares so many "
            "logits",
            classes,
            "choose single attacks, such as apgd-ce and square",
        )
    many = RESTARTS if norm == "l1" or version == "plus" else 1
    found: dict[str, Stepwise] = {
        "apgd-ce": APGD(rho, norm, restarts=1 if version == "rand" else many),
        "apgd-dlr": APGD(rho, norm, loss="dlr", restarts=1 if version == "rand" else many),
        "fab": FAB(rho, norm, restarts=RESTARTS),
        **targeted(rho, norm, classes),
        "square": SquareAttack(rho, norm, QUERIES, rescale=False),
    }
    names = {
        "standard": ("apgd-ce", "apgd-t", "fab-t", "square"),
        "plus": ("apgd-ce", "apgd-dlr", "fab", "square", "apgd-t", "fab-t"),
        "rand": ("apgd-ce", "apgd-dlr"),
    }[version]
    return {name: found[name] for name in names}
