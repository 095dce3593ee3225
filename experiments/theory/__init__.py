"""What the papers behind this project prove, as functions, and the studies that run it."""
