"""Speed beside PyTorch, for scripts that call it by its own name: `experiments.tools benchmark`."""

import typer

from experiments.tools.benchmark import benchmark

if __name__ == "__main__":
    typer.run(benchmark)
