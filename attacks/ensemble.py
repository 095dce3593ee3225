"""AutoAttack: an ensemble of attacks, each on the images that those before it left right.

It is computed in pieces of a fixed number of images and steps. Images that have fallen leave
between pieces, and what is done is kept, so that a computation that was stopped goes on.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Int

from attacks.errors import AttackError
from attacks.lazy import Array, PyTree, jax, jnp
from attacks.losses import Logits
from attacks.programs import Network, answers, look, run_programs
from attacks.steps import Run, State, Stepwise, is_ours, length, same

Store = MutableMapping[str, Any]
"""Named results, each a dict of named arrays, that outlive a stop."""
DRAWS = 20
"""Of a network with chance, for each gradient."""
BATCH, CHUNK = 48, 1024
"""Most images of a compiled program, and of a result that is kept."""
UNIT = 4
"""What the number of a program's images is a multiple of."""
WORTH = 5000
"""Steps of an image to be saved for which programs of fewer images are compiled."""
LONGEST = 50
"""Most steps between two looks at what has fallen."""
SAVED_EVERY = 30.0
"""Seconds."""
IN_PROGRESS = "in progress"
CONTENT = ("chunk", "alive", "fallen", "points", "run", "step", "size")
"""What is kept of a chunk in progress beside its state."""
SQUARE_FALL = 0.002
"""Fall of the accuracy by Square above which gradients are suspected."""
TOLERANCE = 1e-4
"""Of the ball, relative, in which points must lie to count as fallen."""


class Robustness(NamedTuple):
    """What an ensemble of attacks left.

    Attributes:
        right: of each attack's name, and before them of `clean`, which images are still classified
            correctly after it, (n,).
        images: (n, …), misclassified ones where an attack found them, else the images themselves.
        flags: sentences on what makes the evaluation doubtful.
    """

    right: dict[str, Bool[np.ndarray, " n"]]
    images: np.ndarray
    flags: list[str]

    @property
    def accuracies(self) -> dict[str, float]:
        """Fraction right after each attack."""
        return {name: float(right.mean()) for name, right in self.right.items()}


Report = Callable[[str, int, int, float], None]
"""Called with an attack's name, how many images it is done with, of how many, and the fraction of
all images that is still right."""


def attack_all(
    apply: Callable[..., Logits],
    params: PyTree,
    images: np.ndarray,
    labels: Int[np.ndarray, " n"],
    attacks: Mapping[str, Stepwise],
    *,
    seed: int = 0,
    draws: int = 0,
    batch: int = BATCH,
    devices: Sequence[Any] | None = None,
    store: Store | None = None,
    report: Report | None = None,
    options: Mapping[str, Any] | None = None,
) -> Robustness:
    """Run attacks one after the other, each on the images that are still classified correctly.

    Args:
        apply: returns logits (n, o) of (params, images), each image by itself; with `draws`, of
            (params, images, key). Its programs are kept, so what it captures must not change.
        params: of the network.
        images: (n, …), floating point in [0, 1], in whose type the attacks compute.
        labels: classes.
        attacks: by name, such as `attacks.autoattack` gives.
        seed: of starts and draws. An image's draws are its own, whatever else is attacked.
        draws: of a network with chance, for each gradient; 0 for one without.
        batch: most images of a compiled program.
        devices: that share each batch, if it can be divided; those of this process if left out.
        store: where results are kept. The same call goes on with what is there, and returns what
            it would have returned unstopped.
        report: called after each piece.
        options: of the compiler, as `jax.jit` takes them.

    Returns:
        What each attack left right, and the attacked images.

    Raises:
        AttackError: if a label is none of the network's classes, an attack is not for these images
            or for so few classes, or the network returns no logits of a single image.

    Example:
        >>> import jax.numpy as jnp
        >>> from attacks import APGD, FAB
        >>> apply = lambda w, x: x @ w
        >>> w, x = jnp.eye(4), np.array([[0.9, 0.1, 0.1, 0.1], [0.3, 0.2, 0.1, 0.1]], np.float32)
        >>> attacks = {"apgd-ce": APGD(0.1), "fab": FAB(0.1)}
        >>> attack_all(apply, w, x, np.array([0, 0]), attacks).accuracies
        {'clean': 1.0, 'apgd-ce': 0.5, 'fab': 0.5}
    """
    images, labels = np.asarray(images), np.asarray(labels, np.int32)
    network = Network(apply, draws, tuple((options or {}).items()))
    store = {} if store is None else store
    job = _Job(network, params, images, labels, jax.random.key(seed), batch, devices, store)
    job.check(attacks)
    right, finite = job.answers(images, np.arange(len(labels)))
    found, attacked, flags = {"clean": right}, images.copy(), job.flags()
    if not finite.all():
        flags.append(
            f"at {(~finite).sum()} of {len(labels)} images the logits are NaN or infinite, which "
            "counts as misclassified"
        )
    for place, (name, attack) in enumerate(attacks.items()):
        before, right = right, right.copy()
        rows = np.flatnonzero(right)
        for start in range(0, len(rows), CHUNK):
            some = rows[start : start + CHUNK]

            def tell(part: float, fallen: int, start: int = start, size: int = len(some)) -> None:
                if report is not None:
                    left = float(right.mean()) - fallen / len(labels)  # noqa: B023
                    report(name, start + int(part * size), len(rows), left)  # noqa: B023

            fallen, points = job.chunk(f"{name} {start // CHUNK}", place, attack, some, tell)
            attacked[fallen], right[fallen] = points, False
        found[name] = right
        fall = before.mean() - right.mean()
        if name == "square" and len(found) > 2 and fall > SQUARE_FALL:
            flags.append(
                f"Square lowered the accuracy by {fall:.2%} after attacks that follow gradients, "
                "which may be masked: try more queries, or an attack made for this network"
            )
    return Robustness(found, attacked, flags)


@dataclass(eq=False)
class _Job:
    """A network under attack, with the programs of attacks of one's own.

    Attributes:
        store: the results of chunks, and where the present one stands.
        saved: when that was written last.
    """

    network: Network
    params: PyTree
    images: np.ndarray
    labels: np.ndarray
    key: Array
    batch: int
    devices: Sequence[Any] | None
    store: Store = field(default_factory=dict)
    saved: float = field(default_factory=time.monotonic)
    own: dict[Any, tuple[Callable[..., Any], ...]] = field(default_factory=dict)

    def chunk(
        self,
        chunk: str,
        place: int,
        attack: Stepwise,
        rows: np.ndarray,
        tell: Callable[[float, int], None],
    ) -> tuple[np.ndarray, np.ndarray]:
        """The rows of a chunk that fall, and their points."""
        if (kept := self.store.get(chunk)) is not None:
            return kept["rows"], kept["points"]
        alive, state, at, size = rows, None, (0, 0), self._size(len(rows))
        fallen, points = np.zeros(0, int), np.zeros((0, *self.images.shape[1:]), self.images.dtype)
        kept = self.store.get(IN_PROGRESS)
        if kept is not None and str(kept["chunk"]) == chunk:
            alive, fallen, points = kept["alive"], kept["fallen"], kept["points"]
            at, size = (int(kept["run"]), int(kept["step"])), int(kept["size"])
            leaves = [kept[f"state {i}"] for i in range(len(kept) - len(CONTENT))]
            state = self._like(attack, attack.runs[at[0]], leaves)
        left = sum(run.steps for run in attack.runs)
        for number, run in enumerate(attack.runs):
            for one, two in pairwise([0, *_looks(run.steps)]):
                left -= two - one
                if (number, one) < at or not len(alive):
                    continue
                state = self._piece((place, number), attack, run, (one, two), alive, state, size)
                if run.scale == 1 and (found := np.array(state.found)).any():
                    new = np.asarray(state.adversarial)[found]
                    found[found] = self._fell(attack, new, alive[found])
                    fallen = np.concatenate([fallen, alive[found]])
                    points = np.concatenate([points, np.asarray(state.adversarial)[found]])
                    alive, state = alive[~found], jax.tree.map(lambda a, f=found: a[~f], state)
                size = self._smaller(size, len(alive), left)
                content = {"alive": alive, "fallen": fallen, "points": points, "size": size}
                content |= {"chunk": chunk, "run": number, "step": two}
                self._save_progress(content, state)
                part = (number + two / run.steps) / len(attack.runs)
                tell(1 - (1 - part) * len(alive) / len(rows), len(fallen))
        self.store[chunk] = {"rows": fallen, "points": points}
        self.store.pop(IN_PROGRESS, None)
        return fallen, points

    def _save_progress(self, content: dict[str, Any], state: State | None) -> None:
        """Keep where a chunk stands, now and then."""
        if time.monotonic() - self.saved < SAVED_EVERY:
            return
        leaves = {f"state {i}": leaf for i, leaf in enumerate(jax.tree.leaves(state))}
        self.store[IN_PROGRESS] = jax.tree.map(np.asarray, {**content, **leaves})
        self.saved = time.monotonic()

    def _piece(
        self,
        place: tuple[int, int],
        attack: Stepwise,
        run: Run,
        steps: tuple[int, int],
        alive: np.ndarray,
        state: State | None,
        size: int,
    ) -> State:
        """The state of images after some steps of a run, by programs of so many images."""
        rho = np.asarray(attack.rho, self.images.dtype)
        start, advance = self._programs(attack, run)
        pieces = []
        for places, count in _batches(len(alive), size):
            rows = alive[places]
            draws = self.key, place, self._put(rows)
            given = *self._given(self.images[rows], rows), draws, rho
            now = jax.tree.map(lambda leaf, places=places: self._put(leaf[places]), state)
            if steps[0] == 0:
                now = start(*given, run.target, None if run.first else now.best)
            now = advance(*given, *steps, now)
            pieces.append((now, count))
        # Only now does the host wait for results.
        pieces = (jax.tree.map(lambda a, n=n: np.asarray(a)[:n], now) for now, n in pieces)
        return jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)

    def _programs(self, attack: Stepwise, run: Run) -> tuple[Callable[..., Any], ...]:
        """The state before a run, and after some steps of it."""
        if is_ours(attack):
            return run_programs(self.network, replace(attack, rho=0), same(run))
        if (key := (id(attack), same(run))) not in self.own:
            self.own[key] = run_programs.__wrapped__(self.network, attack, same(run))
        return self.own[key]

    def _like(self, attack: Stepwise, run: Run, leaves: list[np.ndarray]) -> State:
        """A state of these leaves."""
        x, draws = self.images[:1], (self.key, (0, 0), np.zeros(1, int))
        given = self.params, self.key, x, self.labels[:1], draws, x.dtype.type(0)
        start, _ = self._programs(attack, run)
        like = jax.eval_shape(start, *given, run.target, None if run.first else x)
        return jax.tree.unflatten(jax.tree.structure(like), leaves)

    def _given(self, images: np.ndarray, rows: np.ndarray) -> tuple[Any, ...]:
        """What every program takes first, of images that have some rows' labels."""
        return self.weights, self.key, *map(self._put, (images, self.labels[rows]))

    def _fell(self, attack: Stepwise, points: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Whether points are misclassified when they are looked at again, and inside the ball."""
        change = length(jnp.asarray(points - self.images[rows]), attack.norm)
        inside = np.asarray(change) <= attack.rho * (1 + TOLERANCE)
        in_box = ((points >= 0) & (points <= 1)).reshape(len(points), -1).all(1)
        return ~self.answers(points, rows)[0] & inside & in_box

    def answers(self, images: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Whether images are classified as some rows' labels say; whether by finite logits."""
        found = [np.zeros((2, 0), bool)]
        for some, count in _batches(len(rows), self.batch):
            given = self._given(images[some], rows[some])
            found.append(np.asarray(answers(self.network)(*given))[:, :count])
        return np.concatenate(found, 1)

    def check(self, attacks: Mapping[str, Stepwise]) -> None:
        """Refuse labels and attacks that are not for this network."""
        given = self.params, self.key, self.images[:1], self.labels[:1]
        classes = jax.eval_shape(look(self.network), *given).logits.shape[1]
        if self.labels.min(initial=0) < 0 or self.labels.max(initial=0) >= classes:
            raise AttackError(
                f"labels from 0 to {classes - 1}",
                f"{self.labels.min()} to {self.labels.max()}",
                "correct them",
            )
        for attack in attacks.values():
            attack.check(self.images.shape[1:], classes)

    def flags(self) -> list[str]:
        """What makes the evaluation doubtful before it is begun, by the first images."""
        rows, count = next(_batches(len(self.labels), self.batch), (np.zeros(0, int), 0))
        if not count:
            return []

        at = look(self.network)(*self._given(self.images[rows], rows))
        logits, found = np.asarray(at.logits), []
        if (logits >= -1e-5).all() and np.allclose(logits.sum(1), 1, atol=1e-5):
            found.append("the outputs are probabilities: give the logits, or gradients vanish")
        still = (np.abs(np.asarray(at.gradient)[:count]).reshape(count, -1).max(1) == 0).sum()
        if still:
            found.append(
                f"at {still} of {count} images the gradient is zero, which attacks that follow it "
                "cannot leave"
            )
        return found

    def _size(self, count: int) -> int:
        """Images of a program, of which as few programs as can be leave few of their places empty.

        Every device has as many of them.
        """
        sharding, _ = self._shardings
        unit = math.lcm(UNIT, 1 if sharding is None else sharding.num_devices)
        programs = max(-(-count // self.batch), 1)
        return min(max(-(-count // (programs * unit)), 1) * unit, self.batch)

    def _smaller(self, size: int, count: int, steps: int) -> int:
        """The size of the programs of fewer images, where it saves much for so many steps."""
        new = self._size(count)
        places, fewer = (-(-count // each) * each for each in (size, new))
        return new if steps * (places - fewer) >= WORTH else size

    @cached_property
    def _shardings(self) -> tuple[Any, Any]:
        """Of a batch and of the weights, where several devices share a batch."""
        devices = jax.local_devices() if self.devices is None else self.devices
        if len(devices) < 2 or self.batch % len(devices):
            return None, None
        mesh = jax.sharding.Mesh(np.array(devices), ("points",))
        spec = jax.sharding.PartitionSpec
        of = partial(jax.sharding.NamedSharding, mesh)
        return of(spec("points")), of(spec())

    def _put(self, rows: np.ndarray) -> Array | np.ndarray:
        """Rows where several devices share them; programs put others on the only device."""
        return rows if self._shardings[0] is None else jax.device_put(rows, self._shardings[0])

    @cached_property
    def weights(self) -> PyTree:
        """The network's parameters on the devices."""
        return jax.device_put(self.params, self._shardings[1])


def _looks(steps: int) -> list[int]:
    """Steps after which fallen images leave: often at first, when most fall."""
    ends, size = [0], 2
    while ends[-1] < steps:
        ends.append(min(ends[-1] + size, steps))
        size = min(math.ceil(1.5 * size), LONGEST)
    return ends[1:]


def _batches(count: int, size: int) -> Iterator[tuple[np.ndarray, int]]:
    """Places of batches, the last filled up with its own, and how many are new."""
    for start in range(0, count, size):
        places = np.arange(start, min(start + size, count))
        yield np.resize(places, size), len(places)
