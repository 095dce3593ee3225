"""`python -m ntkscore` is the command `ntkscore`."""

from ntkscore.cli import main

main()
