"""Kernels of any network at any points: Gram matrices, joint kernels, and their scores."""
