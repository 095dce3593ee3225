"""Experiments about what the papers prove."""
