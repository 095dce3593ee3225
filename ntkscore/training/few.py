"""Training of a few networks, each chosen by the accuracies that those before it reached."""

import csv
import io
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from cells.space import Space
from ntkscore.analysis.prediction import Predictor
from ntkscore.data.images import ImageSet
from ntkscore.errors import InputError
from ntkscore.results.atomic import locked, publish, writing_to
from ntkscore.training.evaluation import evaluate
from ntkscore.training.fit import Diverged, Moment, split
from ntkscore.training.recipe import Recipe
from ntkscore.training.runs import train

QUEUE, ACCURACIES, EVALUATION, NETWORKS = (
    "queue.csv",
    "accuracies.csv",
    "evaluation.csv",
    "networks",
)
PENDING, OK, DIVERGED = "pending", "ok", "diverged"
CHOOSES = "pgd8"
"""The accuracy that chooses: under PGD-20 with 8/255, on images held out of training."""


class Entry(NamedTuple):
    """A network that was asked for, its folder, and what came of it."""

    key: Hashable
    folder: Path
    status: str


@dataclass(frozen=True, eq=False, kw_only=True)
class FewTrainings:
    """Trainings in a folder: a queue of networks, and the accuracies of those that are done.

    The folder has all there is to know: `queue.csv` with the networks in the order in which they
    were asked for, `networks/N` with the training and evaluation of the N-th, and `accuracies.csv`,
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
        out: the folder.
        space: where the networks come from.
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
        for name in ("budget", "batch"):
            if (value := getattr(self, name)) < 1:
                raise InputError(f"expected a {name} of at least 1 network, got {value}; raise it")

    def entries(self) -> list[Entry]:
        """The queue; a network is `ok` as soon as its folder has an evaluation.

        Raises:
            InputError: if the folder is of other networks.
        """
        path = self.out / QUEUE
        if not path.is_file():
            return []
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))[1:]
        known = {str(key): key for key in self.predictor.inputs.values.index}
        found = []
        for place, (name, status) in enumerate(rows):
            if name not in known:
                raise InputError(
                    f"expected networks of the run in {path}, got {name!r}; name the run that the "
                    "folder was begun with, or another folder"
                )
            folder = self.out / NETWORKS / str(place)
            found.append(
                Entry(known[name], folder, OK if (folder / EVALUATION).is_file() else status)
            )
        return found

    def next(self) -> list[Entry]:
        """The networks to train now: those pending, else a new batch; none if the budget is spent.

        Several processes may ask; the predictor is told what is done.
        """
        with writing_to(self.out):
            self.out.mkdir(parents=True, exist_ok=True)
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
            new = [Entry(key, at, PENDING) for key, at in zip(keys, folders, strict=True)]
            self._write(found + new)
            return new

    def accuracies(self) -> pd.DataFrame:
        """`clean` and `pgd8` of the trained networks, by key, in the order of training."""
        done = [entry for entry in self.entries() if entry.status == OK]
        rows = [_of_evaluation(entry.folder / EVALUATION) for entry in done]
        return pd.DataFrame(rows, [entry.key for entry in done], columns=["clean", CHOOSES])

    def diverged(self, entry: Entry) -> None:
        """Record that a network's training diverged; it is not asked for again."""
        with locked(self.out):
            found = self.entries()
            place = [each.key for each in found].index(entry.key)
            found[place] = entry._replace(status=DIVERGED)
            self._write(found)

    def _write(self, entries: list[Entry]) -> None:
        """Write queue and accuracies, and tell the predictor."""
        if not entries:
            return
        name = next(iter(self.space.identity(self.space.parse(entries[0].key))))
        done = {e.key: _of_evaluation(e.folder / EVALUATION) for e in entries if e.status == OK}
        self.predictor.tell({key: row[CHOOSES] for key, row in done.items()})
        rows = [(name, "clean", CHOOSES), *((key, *row.values()) for key, row in done.items())]
        _publish(self.out / ACCURACIES, rows)
        _publish(self.out / QUEUE, [(name, "status"), *((e.key, e.status) for e in entries)])


def check_held_out(recipe: Recipe) -> None:
    """Refuse a recipe that holds out no images: the test images must not choose."""
    if not recipe.held_out:
        raise InputError(
            "expected images that are held out of training to choose by, got none; hold out some, "
            "such as --held-out 1000"
        )


def train_few(
    few: FewTrainings,
    images: ImageSet,
    recipe: Recipe,
    *,
    seed: int = 0,
    report: Callable[[Entry, Moment], None] = lambda entry, at: None,
) -> Iterator[Entry]:
    """Train networks until the budget is spent; the same call resumes.

    Args:
        few: the folder, and what may be trained.
        images: the training images; those held out by the recipe choose.
        recipe: settings of each training.
        seed: of weights, order and attacks.
        report: called with a network and its training's progress.

    Yields:
        Each network when it is done.

    Raises:
        InputError: if the recipe holds out no images: the test images must not choose.
    """
    check_held_out(recipe)
    _, rows = split(len(images.labels), recipe.held_out)
    held = replace(images, images=images.images[rows], labels=images.labels[rows])
    while waiting := few.next():
        for entry in waiting:
            try:
                trained = train(
                    entry.key,
                    images,
                    recipe,
                    space=few.space,
                    seeds=(seed,),
                    out=entry.folder,
                    report=lambda at, entry=entry: report(entry, at),
                )
            except Diverged:
                few.diverged(entry)
                yield entry._replace(status=DIVERGED)
                continue
            frame = evaluate(
                trained.model(),
                held.images,
                held.labels,
                radii=(8,),
                metrics=("clean", "pgd"),
                seed=seed,
            )
            publish(entry.folder / EVALUATION, frame.to_csv(index=False).encode())
            yield entry._replace(status=OK)


def _of_evaluation(path: Path) -> dict[str, float]:
    """The clean and the attacked accuracy in the file that `ntkscore evaluate` leaves."""
    frame = pd.read_csv(path)
    frame = frame[frame["class"] == -1]
    grey = (frame["rho"] * 255).round()
    chosen = {
        "clean": frame["metric"] == "clean",
        CHOOSES: (frame["metric"] == "pgd") & (grey == 8),
    }
    return {name: float(frame.loc[rows, "value"].iloc[0]) for name, rows in chosen.items()}


def _publish(path: Path, rows: list[tuple]) -> None:
    """Write rows as a .csv file, whole or not at all, where they differ from what is there."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(rows)
    content = text.getvalue().encode()
    if not path.is_file() or path.read_bytes() != content:
        publish(path, content)
