"""Tables in Markdown."""

from collections.abc import Iterable, Sequence


def markdown_table(head: Iterable[object], rows: Iterable[Sequence[object]]) -> str:
    """A table, bars in its entries escaped."""
    first, *others = (
        [str(entry).replace("|", "\\|") for entry in entries] for entries in (head, *rows)
    )
    lines = (first, ["---"] * len(first), *others)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
