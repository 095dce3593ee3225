"""Adversarial training of a network, and its evaluation."""
