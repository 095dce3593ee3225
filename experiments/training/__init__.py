"""Experiments that train networks."""
