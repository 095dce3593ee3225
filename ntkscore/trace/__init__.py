"""A network's equations, read from a trace of its `apply`, and what follows from them."""
