PYTHON ?= python3
VENV ?= .venv
ORACLES ?= .venv-oracles
BIN = $(VENV)/bin
# Files of tests side by side; each process compiles, and takes up to 3 GB.
PARALLEL ?= --numprocesses auto --maxprocesses 4 --dist loadfile

.PHONY: rank quick test check oracles clean

# Rank 64 random cells on the embedded images, at small fidelity.
rank: $(VENV)/.installed
	$(BIN)/ntkscore rank --cells random:64 --channels 8 --cells-per-stage 1 --samples 16 --out runs/first

# The tests that compile no large network: under a minute.
quick: $(VENV)/.installed
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not oracle"

test: $(VENV)/.installed
	$(BIN)/python -m pytest $(PARALLEL)

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The tests that compare with PyTorch and neural-tangents, which have an environment of their own.
oracles: $(ORACLES)/.installed
	$(ORACLES)/bin/python -m pytest -m oracle

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

$(ORACLES)/.installed: pyproject.toml
	$(PYTHON) -m venv $(ORACLES)
	$(ORACLES)/bin/python -m pip install --editable '.[oracles]'
	touch $@

clean:
	rm -rf $(VENV) $(ORACLES) runs
