"""The command line: parses, calls, prints."""

import sys

# Imported for their commands, in the order in which help lists them.
from ntkscore.cli import scoring as scoring  # isort: skip
from ntkscore.cli import ranking as ranking  # isort: skip
from ntkscore.cli import looking as looking  # isort: skip
from ntkscore.cli import exploring as exploring  # isort: skip
from ntkscore.cli import training as training  # isort: skip
from ntkscore.cli.app import app as app


def main() -> None:
    """Entry point of the command `ntkscore`."""
    try:
        app()
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)
