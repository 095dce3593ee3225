"""The self-check: comparison of a backend with parity files."""
