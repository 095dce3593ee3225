"""Numbers and messages as people read them."""

import math
from fractions import Fraction

from ntkscore.errors import InputError


def parse_fraction(text: str) -> float:
    """A number from `0.03` or `8/255`."""
    try:
        return float(Fraction(text.replace(" ", "")))
    except (ValueError, ZeroDivisionError, OverflowError) as error:
        raise InputError(
            "a number or a fraction such as 8/255", repr(text), "write it that way"
        ) from error


def format_rho(rho: float) -> str:
    """A radius in grey levels where it is a whole number of them."""
    levels = rho * 255
    return f"{round(levels)}/255" if math.isclose(levels, round(levels)) else f"{rho:g}"


def one_line(error: Exception) -> str:
    """The message of an error without its line breaks."""
    return " ".join(str(error).split())
