PYTHON ?= python3
VENV ?= .venv
ORACLES ?= .venv-oracles
TARGETS ?= .venv-targets
BIN = $(VENV)/bin
# On a GPU EXTRAS=cuda, on a TPU EXTRAS=tpu; they count when the environment is made.
EXTRAS ?=
# What `make accelerator` measures, for how long, and where it goes.
SIZE ?= full
MINUTES ?= 10
OUT ?= runs/accelerator
# Each process has a part of the tests in their order, and takes from another when it has none left.
# Each compiles, and takes up to 3 GB.
PARALLEL ?= --numprocesses auto --maxprocesses 4 --dist worksteal

QUICK = tests/analysis tests/cli tests/data tests/results tests/test_config.py tests/test_docs.py \
	tests/test_house.py tests/test_public.py

.PHONY: rank quick test thorough check oracles fits accelerator site dist clean

# Score 64 random cells on the embedded images, at small fidelity, and rank them.
rank: $(VENV)/.plain
	$(BIN)/ntkscore score random:64 --channels 8 --cells-per-stage 1 --samples 16 --out runs/first
	$(BIN)/ntkscore rank runs/first

# The tests of what is read, kept, compared and printed, which compile little: a third of
# them, four minutes of CPU.
quick: $(VENV)/.installed
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow and not thorough and not oracle" $(QUICK)

# What must pass: all but the longest. Eight to fourteen minutes on two cores, up to 10 GB.
test: $(VENV)/.installed
	$(BIN)/python -m pytest $(PARALLEL)

# The longest, before a release: runs killed and resumed, several devices and processes, every
# theory experiment in small, well-known PyTorch networks.
thorough: $(VENV)/.installed $(ORACLES)/.installed $(TARGETS)/.installed
	$(BIN)/python -m pytest $(PARALLEL) -m "thorough and not oracle and not target"
	$(ORACLES)/bin/python -m pytest $(PARALLEL) -m "thorough and oracle"
	JAX_PLATFORMS=cpu $(TARGETS)/bin/python -m pytest $(PARALLEL) -m "thorough and target"

check: $(VENV)/.installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright --pythonpath $(BIN)/python

# The tests that compare with PyTorch and neural-tangents, which have an environment of their own,
# compiled as users compile.
oracles: $(ORACLES)/.installed
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(ORACLES)/bin/python -m pytest $(PARALLEL) -m "oracle and not thorough"

# The tests that compile for GPUs and TPUs that are not at hand; their compilers have an environment
# of their own.
fits: $(TARGETS)/.installed
	JAX_PLATFORMS=cpu $(TARGETS)/bin/python -m pytest $(PARALLEL) -m "target and not thorough"

# Arithmetic and speed of this machine's devices, and the whole space ranked on them.
accelerator: $(VENV)/.installed
	$(BIN)/python -m experiments.tools accelerator --size $(SIZE) --minutes $(MINUTES) --out $(OUT)

# The documentation in runs/site; every warning is an error.
site: $(VENV)/.installed
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -q -b html docs runs/site

# Wheel and source archive, checked, and the first command run from the wheel in an empty folder.
dist: $(VENV)/.installed
	rm -rf dist build
	$(BIN)/python -m pip install --quiet build twine
	$(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*
	folder=$$(mktemp -d) && wheel=$$(ls $$PWD/dist/*.whl) && $(PYTHON) -m venv $$folder/env && \
	$$folder/env/bin/python -m pip install --quiet $$wheel && cd $$folder && \
	env/bin/ntkscore --version && env/bin/ntkscore explore recorded --out page.html && \
	env/bin/ntkscore score random:4 --channels 4 --cells-per-stage 1 --samples 4 --out runs/first && \
	env/bin/ntkscore rank runs/first

# An environment, by a Python that is new enough; one that is there stays.
define environment
	@$(1)/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	$(PYTHON) -c 'import sys; v = sys.version_info[:2]; v >= (3, 11) or sys.exit("$(TOO_OLD)" % v)' && \
	$(PYTHON) -m venv --clear $(1); }
endef
TOO_OLD = Python 3.11 or newer is needed, and $(PYTHON) is %d.%d: give PYTHON=python3.13, for example

# What a user has; `.installed` adds what developers need.
$(VENV)/.plain: pyproject.toml
	$(call environment,$(VENV))
	$(BIN)/python -m pip install --editable '.$(if $(EXTRAS),[$(EXTRAS)])'
	touch $@

$(VENV)/.installed: $(VENV)/.plain
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

$(ORACLES)/.installed: pyproject.toml
	$(call environment,$(ORACLES))
	$(ORACLES)/bin/python -m pip install --editable '.[oracles]'
	touch $@

$(TARGETS)/.installed: pyproject.toml
	$(call environment,$(TARGETS))
	$(TARGETS)/bin/python -m pip install --editable '.[test,targets]'
	touch $@

clean:
	rm -rf $(VENV) $(ORACLES) $(TARGETS) build dist
