"""The studies of the theory: each module is one, under its own name."""

from importlib import import_module

from experiments.frame import Study
from experiments.study import Experiment

TITLES = {
    "width": "Kernels of wide networks against their limits (T1)",
    "eigenvalue": "Lower bounds of the least eigenvalue, printed and corrected (T2)",
    "ranking": "Whether the leading terms of the bounds rank networks (T3)",
    "tradeoff": "Clean and robust error over β, and what the bounds say of them (T4)",
    "lazy": "Which output scale is lazy (T5)",
    "filters": "Filter size and the largest stable step (T6)",
    "lemmas": "The lemmas behind theorem 1 and corollary 1 (T7)",
    "gradient": "Length and change of a deep network's gradient (G1)",
    "projected": "Projected descent against the exact worst case (G2)",
    "smooth": "Descent on smooth two-layer networks, without projection (G3)",
    "features": "How many random features a function needs (G4)",
    "interpolation": "The width that fits points with balls around them (G5)",
    "approximation": "Robust functions near the start, and descent to them (G6)",
    "random-flip": "The smallest step that flips a random network (L1)",
    "lazy-flip": "The smallest step that flips a network trained in its ball (L2)",
    "lazy-radius": "How the flipping step grows with the ball (L3)",
    "lazy-adversarial": "Adversarial training in the lazy ball, by radius and dimension (L4)",
    "lazy-deviation": "The ball that adversarial training needs (L5)",
    "random-stability": "Perturbation stability of random networks (S1)",
    "lazy-stability": "Perturbation stability after training, by width and depth (S2)",
    "travelling-stability": "Perturbation stability when the weights must travel (S3)",
    "convolutional-stability": "Perturbation stability of convolutions, and longer training (S4)",
}
THEORY = {
    f"theory-{name}": Experiment(title, import_module(f"{__name__}.{name.replace('-', '_')}").run)
    for name, title in TITLES.items()
}

STUDIES: dict[str, Study] = {}
