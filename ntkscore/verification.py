"""Moved to `ntkscore.verify.checks`."""

from ntkscore.verify.checks import relative_error as relative_error
from ntkscore.verify.checks import verify as verify
