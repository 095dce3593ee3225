"""The command line: parses, calls, prints."""

from ntkscore.cli.app import app_for as app_for
from ntkscore.cli.app import main as main
