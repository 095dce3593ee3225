"""Robust accuracy predicted from that of a few trained networks."""
