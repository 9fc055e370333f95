# The commands of this project. Each sets up .venv if it is missing or out of date.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
READY_DOCS := .venv/.ready-docs
READY_ALL := .venv/.ready-all
READY_DIST := .venv/.ready-dist

.PHONY: help run test test-all nightly slowest check docs dist
help:
	@echo "make run       evaluates the embedded model on its own questions with four prompts"
	@echo "make test      run after every change: the fast tests"
	@echo "make test-all  run before merging: adds one test of each mechanism and plugin; installs torch, Ray and trackers"
	@echo "make nightly   everything: simulations, every fault, 200 examples of each property"
	@echo "make slowest   the twenty slowest tests of 'make test'"
	@echo "make check     linter, formatter, types and import rules"
	@echo "make docs      the documentation site, in site/"
	@echo "make dist      wheel and sdist, checked, in dist/"

run: $(READY)
	$(BIN)/refusal-index run

# Tests start Python again and again: compiled once, and one thread of BLAS, in the fast tests also of
# Polars, beside as many workers as cores.
test test-all nightly slowest: export PYTHONDONTWRITEBYTECODE :=
test test-all nightly slowest: export OPENBLAS_NUM_THREADS := 1
test slowest: export POLARS_MAX_THREADS := 1
PYTEST := $(BIN)/python -m pytest -n auto --dist worksteal

test: $(READY)
	$(PYTEST) -m "not slow and not nightly"

test-all: $(READY_ALL)
	$(PYTEST) -m "not nightly" --hypothesis-profile=thorough

nightly: $(READY_ALL)
	$(PYTEST) --hypothesis-profile=nightly --timeout=1800

slowest: $(READY)
	$(PYTEST) -m "not slow and not nightly" -q --durations=20 --durations-min=0

check: $(READY)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY_DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# Without isolation, so that what builds a release is what constraints.txt pins.
dist: $(READY_DIST)
	rm -rf dist
	$(BIN)/python -m build --no-isolation --outdir dist
	$(BIN)/python -m twine check --strict dist/*

$(READY_DOCS): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $(READY_DOCS)

$(READY_ALL): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[batch,ray,transformers,trl,wandb,mlflow,lm-eval,publish]'
	@touch $(READY_ALL) $(READY_DIST)

$(READY_DIST): $(READY)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[publish]'
	@touch $(READY_DIST)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("refusal-index needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[eval,confidence,dev]'
	@touch $(READY)
