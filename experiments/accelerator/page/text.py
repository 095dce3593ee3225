"""Numbers as the page writes them."""

import math

MISSING = "Not measured."


def number(value: float, unit: str = "") -> str:
    """Three digits and a unit; a dash for what is not known."""
    return "–" if math.isnan(value) else f"{value:.3g}{unit}"


def gigabytes(count: float | None) -> str:
    """A number of bytes; a dash for what is not known."""
    return number(math.nan if count is None else count / 2**30, " GiB")


def bullets(sentences: list[str]) -> str:
    """A list of sentences, which come without their full stops."""
    return "\n".join(f"- {sentence}." for sentence in sentences)
