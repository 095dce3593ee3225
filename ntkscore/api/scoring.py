"""Scores of architectures, or of networks of your own."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from os import PathLike
from typing import Any

from ntkscore.api.runs import Run
from ntkscore.candidates import Candidates
from ntkscore.config import Config
from ntkscore.data.images import ImageSet
from ntkscore.data.tables import Table
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.names import names_of
from ntkscore.results.store import Memory
from ntkscore.run import engine
from ntkscore.run.engine import Progress
from ntkscore.run.scoring import Scoring
from ntkscore.space import Architecture, Space
from ntkscore.task import check_classes

Images = ImageSet | str | PathLike[str] | tuple[Any, Any]


def score(
    networks: Model | Mapping[str, Any] | str | Architecture | Sequence[Architecture],
    images: Images,
    config: Config | None = None,
    *,
    space: Space | None = None,
    seeds: int | Sequence[int] | None = None,
    out: str | PathLike[str] | None = None,
    table: Table | None = None,
    batch: int | None = None,
    executor: Executor | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
) -> Run:
    """Score networks without training them, on all local devices or by an executor's workers.

    With `out` finished networks are on disk however the run ends, and the same call resumes it;
    each core of a CPU is a device then, if JAX has not computed anything yet. Compiled programs are
    kept in the user's cache unless JAX's settings name another folder.

    Args:
        networks: of a search space, by any name that it knows: one, a list, or a specification such
            as `random:64` or `distinct` (`ntkscore.run.selection.select`). Or networks of your own
            at the weights that they have: a model or a PyTorch module, or a dict of them by name.
        images: to draw from: their name, or `load_images(name, samples=…)`. Or (images, labels) to
            score on as they are: (N, height, width, colours) with pixels in [0, 1], for networks of
            your own any (N, …); and (N,) classes.
        config: how to score; `Config()` if left out.
        space: where the networks come from; NAS-Bench-201 if left out. None beside networks of your
            own.
        seeds: how many, counted from 0, or which; if left out three of NAS-Bench-201 and one of any
            other space. Each draws its own images and weights, and the attack's random start;
            networks of your own keep their weights.
        out: the result directory, or a URL of object storage such as `s3://bucket/run`; in memory
            if left out.
        table: for the specifications `table` and `table:K`.
        batch: networks per device and call; chosen from the free memory if left out.
        executor: whose workers compute, such as a process pool or
            `dask.distributed.Client(…).get_executor(retries=3)`; only this process writes. Models
            are sent to them, if they can be pickled. The local devices if left out.
        report: called with the progress after every call to the devices.

    Returns:
        A run of these networks and seeds: `rows`, `scores`, `rank`, `correlate`, `predict`, `page`.

    Raises:
        InputError: if something does not fit; nothing is written then.

    Example:
        >>> from cells import Residual
        >>> from ntkscore import load_images
        >>> images = load_images("synthetic", samples=4)
        >>> run = score("all", images, space=Residual(depth=3, width=8))
        >>> run.rank(by="clean.trace")[["rank", "skips"]].shape
        (2, 2)

        >>> import jax, jax.numpy as jnp, numpy as np
        >>> def apply(params, x):
        ...     return jnp.tanh(x @ params[0]) @ params[1]
        >>> keys = jax.random.split(jax.random.key(0), 2)
        >>> params = [jax.random.normal(keys[0], (6, 16)), jax.random.normal(keys[1], (16, 3))]
        >>> images, labels = np.random.default_rng(0).uniform(size=(4, 6)), np.array([0, 1, 2, 0])
        >>> rows = score(Model(apply, params), (images, labels)).rows
        >>> rows["status"].value_counts().to_dict()
        {'ok': 62, 'not_given': 11}
    """
    space, named = own_or_named(networks, space)
    data = ImageSet.of(*images) if isinstance(images, tuple) else images
    # Networks of one's own have as many logits as they like.
    if isinstance(data, ImageSet) and data.samples is None and not isinstance(space, Candidates):
        check_classes(data.num_classes)
    scoring = Scoring.of(data, config, space=space, seeds=seeds)
    how = {"batch": batch, "executor": executor, "report": report}
    return scored(scoring, scoring.select(named, table), out, **how)


def scored(
    scoring: Scoring,
    chosen: Sequence[Architecture],
    out: str | PathLike[str] | None = None,
    **how: Any,
) -> Run:
    """The run of some networks, in memory without `out`; arguments as for `engine.run`."""
    results = engine.run(scoring, chosen, Memory() if out is None else out, **how)
    keys = tuple(dict.fromkeys(map(scoring.space.key, chosen)))
    return Run(results, scoring.space, keys, tuple(scoring.seeds))


def own_or_named(networks: Any, space: Space | None) -> tuple[Space | None, Any]:
    """The space of some networks, and what names them: networks of one's own are a space."""
    if isinstance(networks, Model) or callable(networks):
        networks = {"network": networks}
    if not isinstance(networks, Mapping):
        return space, networks if isinstance(networks, str) else names_of(networks)
    if space is not None:
        raise InputError(
            "no space beside networks of your own, which are one", space.name, "leave it out"
        )
    return Candidates(networks=networks), "all"
