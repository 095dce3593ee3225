"""The command line: parses, calls, prints."""

from ntkscore.cli.commands import app as app
from ntkscore.cli.commands import main as main
