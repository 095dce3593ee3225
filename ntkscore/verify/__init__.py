"""The self-check: parity files, and a backend held against them."""
