"""Training of a few networks, each chosen by the accuracies that those before it reached."""

import csv
import json
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ntkscore.analysis.prediction import Predictor
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.options import check_least
from ntkscore.results import checkpoints
from ntkscore.results.atomic import locked, publish
from ntkscore.run import devices
from ntkscore.run.cluster import unless_lost
from ntkscore.space import Space
from ntkscore.training.evaluation import evaluate
from ntkscore.training.fit import Diverged, Moment, split
from ntkscore.training.recipe import Recipe
from ntkscore.training.runs import train

QUEUE, ACCURACIES, RESULT, NETWORKS = "queue.csv", "accuracies.csv", "result.json", "networks"
PENDING, OK, DIVERGED = "pending", "ok", "diverged"
CLEAN, CHOOSES = "clean", "pgd8"
"""Accuracies of a network on images held out of training, clean and under PGD-20 with 8/255; the
second chooses."""


class Entry(NamedTuple):
    """A network that was asked for, the folder of its training and result, and its accuracies."""

    key: Hashable
    folder: Path
    status: str = PENDING
    accuracies: dict[str, float] | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class FewTrainings:
    """Trainings in a folder: a queue of networks, and the accuracies of those that are done.

    The folder has all there is to know: `queue.csv` with the networks in the order in which they
    were asked for, `networks/N` with the training and the result of the N-th, and `accuracies.csv`,
    which `predict` reads. Whatever ends in between goes on from there.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from cells.residual import Residual
        >>> predictor = Predictor(pd.DataFrame({"clean.trace": range(4)}, ["00", "01", "10", "11"]))
        >>> with TemporaryDirectory() as folder:
        ...     how = {"space": Residual(), "predictor": predictor, "budget": 3, "batch": 2}
        ...     few = FewTrainings(out=Path(folder), **how)
        ...     [entry.key for entry in few.next()], [entry.status for entry in few.next()]
        (['00', '11'], ['pending', 'pending'])

    Attributes:
        space: where the networks come from, at the size that is trained.
        predictor: of all networks that may be trained; it is told what is trained.
        budget: networks to train, as far as there are so many.
        batch: networks to ask for at a time.
    """

    out: Path
    space: Space
    predictor: Predictor
    budget: int
    batch: int = 1

    def __post_init__(self) -> None:
        check_least(self, budget=1, batch=1)

    def begin(self, images: ImageSet, recipe: Recipe, seed: int) -> None:
        """Record what decides the accuracies."""
        if not recipe.held_out:
            raise InputError(
                "images that are held out of training to choose by",
                "none: the test images must not choose",
                "hold out some, such as --held-out 1000",
            )
        described = {"dataset": images.name, "checksum": images.checksum, "seed": seed}
        checkpoints.begin(self.out, {**self.space.columns, **described, "recipe": asdict(recipe)})

    def entries(self) -> list[Entry]:
        """The queue; what became of a network is in its folder."""
        path = self.out / QUEUE
        if not path.is_file():
            return []
        try:
            names = [row[0] for row in csv.reader(path.read_text("utf-8").splitlines()[1:])]
        except (ValueError, IndexError, csv.Error) as error:
            raise _damaged(path, error) from None
        if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
            raise InputError(
                f"each network once in {path}",
                f"{twice[0]!r} {names.count(twice[0])} times, so that accuracies may stand "
                "beside the wrong names",
                "choose another folder",
            )
        known = {str(key): key for key in self.predictor.inputs.index}
        found = []
        for place, name in enumerate(names):
            if name not in known:
                raise InputError(
                    f"networks of the run in {path}",
                    repr(name),
                    "name the run that the folder was begun with, or another folder",
                )
            found.append(_read(Entry(known[name], self.out / NETWORKS / str(place))))
        return found

    def next(self) -> list[Entry]:
        """The networks to train now: those pending, else a new batch; none if the budget is spent.

        The predictor is told what is done.
        """
        with locked(self.out):
            found = self.entries()
            self._write(found)
            waiting = [entry for entry in found if entry.status == PENDING]
            left = self.budget - len(found)
            if waiting or left < 1:
                return waiting
            failed = [entry.key for entry in found if entry.status == DIVERGED]
            keys = self.predictor.ask(min(self.batch, left), pending=failed)
            folders = (self.out / NETWORKS / str(len(found) + at) for at in range(len(keys)))
            new = [Entry(key, folder) for key, folder in zip(keys, folders, strict=True)]
            self._write(found + new)
            return new

    def accuracies(self) -> pd.DataFrame:
        """`clean` and `pgd8` of the trained networks, by key, in the order of training.

        The file of accuracies has them too.
        """
        with locked(self.out):
            found = self.entries()
            self._write(found)
        return _accuracies(found)

    def _write(self, entries: list[Entry]) -> None:
        """Write queue and accuracies, and tell the predictor."""
        if not entries:
            return
        name = next(iter(self.space.identity(self.space.parse(entries[0].key))))
        done = _accuracies(entries)
        self.predictor.tell(done[CHOOSES])
        queue = pd.DataFrame({"status": {entry.key: entry.status for entry in entries}})
        for file, frame in ((ACCURACIES, done), (QUEUE, queue)):
            content = frame.to_csv(index_label=name, lineterminator="\n").encode()
            path = self.out / file
            if not path.is_file() or path.read_bytes() != content:
                publish(path, content)


def train_few(
    few: FewTrainings,
    images: ImageSet,
    recipe: Recipe,
    *,
    seed: int = 0,
    report: Callable[[Entry, Moment], None] = lambda entry, at: None,
    executor: Executor | None = None,
    load: Callable[[], ImageSet] | None = None,
) -> Iterator[Entry]:
    """Train networks until the budget is spent; the same call resumes.

    Args:
        images: the training images; those held out by the recipe choose.
        seed: of weights, order and attacks.
        report: called with a network and its training's progress, of trainings in this process.
        executor: whose workers train, each a network of a batch; they share the folder.
        load: gives a worker the images; they are sent to each if left out.

    Yields:
        Each network when it is done. Where other processes train all that are left of a batch,
        those come last, `pending`: the next batch needs their accuracies.
    """
    few.begin(images, recipe, seed)
    while waiting := few.next():
        ended = []
        if executor is None:
            how = images, recipe, seed, report
            trained = (train_one(few.space, each, *how) for each in waiting)
        else:
            trained = _by_workers(executor, few.space, waiting, load or images, recipe, seed)
        for each in trained:
            if each.status != PENDING:
                ended.append(each)
                yield each
        if not ended:
            yield from waiting
            return


def _by_workers(
    executor: Executor, space: Space, waiting: Sequence[Entry], *how: Any
) -> Iterator[Entry]:
    submit: Any = executor.submit
    there = (each._replace(folder=each.folder.resolve()) for each in waiting)
    asked = [unless_lost(submit, _train_here, space, each, *how) for each in there]
    try:
        for future in as_completed(asked):
            yield unless_lost(future.result)
    finally:
        for future in asked:
            future.cancel()


def _train_here(
    space: Space,
    entry: Entry,
    images: ImageSet | Callable[[], ImageSet],
    recipe: Recipe,
    seed: int,
) -> Entry:
    devices.keep_compiled()
    loaded = images if isinstance(images, ImageSet) else images()
    return train_one(space, entry, loaded, recipe, seed)


def train_one(
    space: Space,
    entry: Entry,
    images: ImageSet,
    recipe: Recipe,
    seed: int = 0,
    report: Callable[[Entry, Moment], None] = lambda entry, at: None,
) -> Entry:
    """Train one network of the queue, unless another process has or does; arguments as above.

    It comes with its status and accuracies; `pending` where another process trains it.
    """
    with locked(entry.folder, wait=False) as alone:
        if (entry := _read(entry)).status != PENDING or not alone:
            return entry
        _, rows = split(len(images.labels), recipe.held_out)
        how = {"space": space, "seeds": (seed,), "out": entry.folder / "training"}
        try:
            trained = train(
                entry.key, images, recipe, **how, report=lambda moment: report(entry, moment)
            )
        except Diverged:
            result: dict[str, object] = {"status": DIVERGED}
        else:
            held, labels = images.images[rows], images.labels[rows]
            only = {"radii": (8,), "metrics": ("clean", "pgd"), "seed": seed}
            found = evaluate(trained.model(), held, labels, **only)
            whole = found[found["class"] == -1].set_index("metric")["value"]
            result = {"status": OK, CLEAN: float(whole["clean"]), CHOOSES: float(whole["pgd"])}
        publish(entry.folder / RESULT, json.dumps(result).encode())
        return _read(entry)


def _read(entry: Entry) -> Entry:
    """The network with what its folder says of it."""
    path = entry.folder / RESULT
    if not path.is_file():
        return entry
    try:
        found = json.loads(path.read_text("utf-8"))
        if found["status"] == DIVERGED:
            return entry._replace(status=DIVERGED)
        accuracies = {name: float(found[name]) for name in (CLEAN, CHOOSES)}
    except (ValueError, KeyError, TypeError) as error:
        raise _damaged(path, error) from None
    return entry._replace(status=OK, accuracies=accuracies)


def _accuracies(entries: list[Entry]) -> pd.DataFrame:
    """Accuracies of the networks that are trained, by key."""
    done = [entry for entry in entries if entry.accuracies is not None]
    rows = [entry.accuracies for entry in done]
    return pd.DataFrame(rows, [entry.key for entry in done], columns=[CLEAN, CHOOSES])


def _damaged(path: Path, error: Exception) -> InputError:
    return InputError(
        "a file that `choose` left",
        f"but {path} is damaged ({type(error).__name__})",
        "delete it, or choose another folder",
    )
