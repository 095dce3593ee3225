"""The experiments about the theory, by name."""

from experiments.study import Experiment
from experiments.theory.studies import (
    eigenvalue,
    features,
    filters,
    gradient,
    interpolation,
    lazy,
    lazy_adversarial,
    lazy_deviation,
    lazy_flip,
    lazy_radius,
    lazy_stability,
    projected,
    random_flip,
    random_stability,
    ranking,
    smooth,
    tradeoff,
    travelling_stability,
    width,
)

THEORY = {
    "theory-width": Experiment("Kernels of wide networks against their limits (T1)", width.run),
    "theory-eigenvalue": Experiment(
        "Lower bounds of the least eigenvalue, printed and corrected (T2)", eigenvalue.run
    ),
    "theory-ranking": Experiment(
        "Whether the leading terms of the bounds rank networks (T3)", ranking.run
    ),
    "theory-tradeoff": Experiment(
        "Clean and robust error over β, and what the bounds say of them (T4)", tradeoff.run
    ),
    "theory-lazy": Experiment("Which output scale is lazy (T5)", lazy.run),
    "theory-filters": Experiment("Filter size and the largest stable step (T6)", filters.run),
    "theory-gradient": Experiment(
        "Length and change of a deep network's gradient (G1)", gradient.run
    ),
    "theory-projected": Experiment(
        "Projected descent against the exact worst case (G2)", projected.run
    ),
    "theory-smooth": Experiment(
        "Descent on smooth two-layer networks, without projection (G3)", smooth.run
    ),
    "theory-features": Experiment("How many random features a function needs (G4)", features.run),
    "theory-interpolation": Experiment(
        "The width that fits points with balls around them (G5)", interpolation.run
    ),
    "theory-random-flip": Experiment(
        "The smallest step that flips a random network (L1)", random_flip.run
    ),
    "theory-lazy-flip": Experiment(
        "The smallest step that flips a network trained in its ball (L2)", lazy_flip.run
    ),
    "theory-lazy-radius": Experiment(
        "How the flipping step grows with the ball (L3)", lazy_radius.run
    ),
    "theory-lazy-adversarial": Experiment(
        "Adversarial training in the lazy ball, by radius and dimension (L4)", lazy_adversarial.run
    ),
    "theory-lazy-deviation": Experiment(
        "The ball that adversarial training needs (L5)", lazy_deviation.run
    ),
    "theory-random-stability": Experiment(
        "Perturbation stability of random networks (S1)", random_stability.run
    ),
    "theory-lazy-stability": Experiment(
        "Perturbation stability after training, by width and depth (S2)", lazy_stability.run
    ),
    "theory-travelling-stability": Experiment(
        "Perturbation stability when the weights must travel (S3)", travelling_stability.run
    ),
}
