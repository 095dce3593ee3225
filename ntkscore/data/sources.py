"""Sources of published files, and their place in the data folder."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Source:
    """Files of a data set or a table: their place in the data folder and how they get there.

    Attributes:
        folder: the folder in the data folder.
        contents: the files in it that make it complete.
        base_url: address of the folder to download from, with a closing slash; "" where there is
            no free download.
        files: names of the files to download, with the checksum as `algorithm:hexadecimal`
            where one is published.
        checks: functions that raise `InputError` on an altered file, for files without a
            published checksum.
        by_hand: what to do instead of a download, as the rest of a sentence; "" where there is
            a download.
    """

    folder: str
    contents: tuple[str, ...]
    base_url: str = ""
    files: Mapping[str, str | None] = field(default_factory=dict)
    checks: Mapping[str, Callable[[Path], object]] = field(default_factory=dict)
    by_hand: str = ""
