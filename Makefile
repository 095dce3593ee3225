PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin

.PHONY: rank test check clean

# Rank 64 random cells on the embedded images, at small fidelity.
rank: $(VENV)/.installed
	$(BIN)/ntkscore rank --cells random:64 --channels 8 --cells-per-stage 1 --samples 16 --out runs/first

test: $(VENV)/.installed
	$(BIN)/python -m pytest

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) runs
