"""A wide residual network by name: blocks and widening factor of each stage, and its counts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ntkscore.errors import InputError

STAGES = 3


class Block(NamedTuple):
    """Sizes of a block.

    Attributes:
        before, after: its channels.
        stride: of its first convolution and its shortcut, in pixels.
    """

    before: int
    after: int
    stride: int = 1

    @property
    def projects(self) -> bool:
        """Whether the shortcut is a convolution, since the shape changes."""
        return self.stride > 1 or self.before != self.after


@dataclass(frozen=True, order=True)
class Stages:
    """A wide residual network, written D₁-D₂-D₃xW₁-W₂-W₃ as in `4-4-4x10-10-10`.

    Attributes:
        depths: D_i, number of blocks in each of the three stages.
        widths: W_i, widening factor of each; stage i has 2^(i−1) · C · W_i channels.

    Example:
        >>> str(Stages.parse("WRN-28-10"))
        '4-4-4x10-10-10'
    """

    depths: tuple[int, ...]
    widths: tuple[int, ...]

    @classmethod
    def parse(cls, text: object) -> "Stages":
        """A network from its name.

        Raises:
            InputError: if it is none.
        """
        if isinstance(text, cls):
            return text
        name = str(text).strip()
        if match := re.fullmatch(r"(\d+)-(\d+)-(\d+)[x×](\d+)-(\d+)-(\d+)", name):
            numbers = tuple(map(int, match.groups()))
        elif match := re.fullmatch(r"(?:wrn|wide-?resnet)-(\d+)-(\d+)", name, re.IGNORECASE):
            depth, width = map(int, match.groups())
            blocks, rest = divmod(depth - 4, 2 * STAGES)
            if rest:
                raise InputError(
                    "a depth of 6n + 4 layers such as 28",
                    f"{depth} in {name!r}",
                    "write the blocks of each stage, as in 4-4-4x10-10-10",
                )
            numbers = (blocks,) * STAGES + (width,) * STAGES
        else:
            raise InputError(
                "a network such as 4-4-4x10-10-10 or WRN-28-10",
                repr(name),
                "write the blocks of each of the three stages, x, and their widening factors",
            )
        if min(numbers) < 1:
            raise InputError(
                "at least one block and a widening factor of at least 1 in each stage",
                repr(name),
                "raise what is 0",
            )
        return cls(numbers[:STAGES], numbers[STAGES:])

    def __str__(self) -> str:
        return "x".join("-".join(map(str, numbers)) for numbers in (self.depths, self.widths))

    def neighbours(self) -> Iterator["Stages"]:
        """Networks with one block or one widening factor by one more or less."""
        numbers = self.depths + self.widths
        for place, number in enumerate(numbers):
            for other in (number - 1, number + 1):
                if other:
                    changed = (*numbers[:place], other, *numbers[place + 1 :])
                    yield Stages(changed[:STAGES], changed[STAGES:])

    def blocks(self, channels: int = 16) -> list[list[Block]]:
        """Sizes of the blocks of each stage, for a stem of C = `channels` channels."""
        stages, before = [], channels
        for stage, (depth, width) in enumerate(zip(self.depths, self.widths, strict=True)):
            after, stride = (channels << stage) * width, 2 if stage else 1
            stages.append([Block(before, after, stride), *[Block(after, after)] * (depth - 1)])
            before = after
        return stages

    def structure(self) -> dict[str, float]:
        """Counts beside the costs and the layers.

        Returns:
            `depth`: convolutions and linear layers on the longest path. `field`: receptive field of
            the features, in pixels. `width`: Σ W_i.

        Example:
            >>> Stages.parse("WRN-28-10").structure()
            {'depth': 26, 'field': 109, 'width': 30}
        """
        blocks = [block for stage in self.blocks() for block in stage]
        field, step = 3, 1
        for block in blocks:
            field += 2 * step  # of a 3×3 convolution, in steps of the pixels that it sees
            step *= block.stride
            field += 2 * step
        return {"depth": 2 * len(blocks) + 2, "field": field, "width": sum(self.widths)}
