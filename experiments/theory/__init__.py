"""Functions for what the papers behind this project prove, and the studies that run them."""
