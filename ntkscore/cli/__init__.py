"""The command line: parses, calls, prints.

A command imports what it needs when it runs, so that help is quick, and what computes after its
input is checked, so that errors are quick.
"""

from ntkscore.cli.app import app_for as app_for
from ntkscore.cli.app import main as main
