"""The networks of timm, by their names, as a search space."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

from ntkscore.bridges import from_torch
from ntkscore.candidates import Candidates
from ntkscore.errors import InputError
from ntkscore.model import Model
from ntkscore.text import one_line


@dataclass(frozen=True, kw_only=True, eq=False)
class Timm(Candidates):
    """The networks of timm at initial weights, the same for each seed, which draws other images.

    Each is made by `timm.create_model(name, num_classes=…, in_chans=…)` after
    `torch.manual_seed(0)`. Pixels are normalised as the data set's are. Normalisations by batch use
    mean and variance of eight random images, since those of a new module normalise nothing.

    Source: R. Wightman, PyTorch Image Models, https://github.com/huggingface/pytorch-image-models.
    """

    name: ClassVar[str] = "timm"
    sets: ClassVar[tuple[str, ...]] = ("all",)

    @cached_property
    def models(self) -> dict[str, Model]:
        """The networks on the space's images, each made when it is asked for."""
        return _Models(self)

    def parse(self, text: object) -> str:
        """A name that timm knows."""
        if not _timm().is_model(str(text)):
            near = difflib.get_close_matches(str(text), _timm().list_models(), 3, 0)
            raise InputError(
                f"a network of timm, one of timm.list_models() such as {', '.join(near)}",
                repr(text),
                "choose one",
            )
        return str(text)

    def architectures(self, which: str) -> Sequence[str]:
        """All names of timm, over a thousand."""
        return tuple(_timm().list_models()) if which in self.sets else super().architectures(which)


class _Models(dict[str, Model]):
    """The models of a space, each made when it is asked for."""

    def __init__(self, space: Timm) -> None:
        self.space = space

    def __missing__(self, name: str) -> Model:
        import torch  # type: ignore[import-not-found]
        from torch import nn  # type: ignore[import-not-found]

        class Normalised(nn.Module):
            """A network of normalised pixels."""

            def __init__(self, network: nn.Module, mean: tuple, std: tuple) -> None:
                super().__init__()
                self.network = network
                self.register_buffer("mean", torch.tensor(mean)[:, None, None])
                self.register_buffer("std", torch.tensor(std)[:, None, None])

            def forward(self, x: Any) -> Any:
                return self.network((x - self.mean) / self.std)

        task = self.space.task
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            how = {"num_classes": task.num_classes, "in_chans": task.image_shape[-1]}
            network = Normalised(_timm().create_model(name, **how), task.mean, task.std)
        self[name] = from_torch(network, self.space.points, statistics="example")
        return self[name]


def _timm() -> Any:
    try:
        import timm
    except ImportError as error:
        raise InputError(
            "the packages timm, torch and torchax for the space timm",
            f"but they are not installed ({one_line(error)})",
            "run pip install 'ntkscore[timm]'",
        ) from error
    return timm
