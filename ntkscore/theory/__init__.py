"""What the papers behind this project prove, as functions: limits, bounds, training."""
