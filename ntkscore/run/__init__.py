"""Architectures and seeds to rows: compiled programs, batches, devices, processes."""
