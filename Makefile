# make run and make test do all the set-up on a machine with Python (3.11 or newer), git and make.
#   PYTHON=python3.12   another Python
#   MODEL=gemma-2b      another model for make run
#   ARGS="--windows 8"  more options of `geomprobe analyze` for make run
#   TESTS=tests/probes  some tests only, or options of pytest

PYTHON ?= python3
MODEL ?= plain
ARGS ?=
TESTS ?=

VENV := .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check
# A stamp is as old as the installation: newer requirements install anew.
RUNS := $(VENV)/.installed
CHECKS := $(VENV)/.installed-dev
WANTED := pyproject.toml constraints.txt
LOWEST := .venv-lowest/.installed

.PHONY: help run test lowest architectures check docs notebooks format clean
.NOTPARALLEL:

help:
	@echo "make run     install, analyze $(MODEL) on the default text, say where the page is; compare the packaged pair"
	@echo "make test    install, run the tests"
	@echo "make lowest  install the oldest releases that pyproject.toml allows, run the tests"
	@echo "make architectures  check every model type of transformers, write docs/architectures.md"
	@echo "make check   format, lint, types, import floors, spelling"
	@echo "make docs    build the documentation in site/, warnings are errors"
	@echo "make notebooks  run the notebooks, write docs/notebooks/*.html"
	@echo "make format  put code into its format"
	@echo "make clean   remove the environment, caches and build outputs (runs/ stays)"

run: $(RUNS)
	@said=$$($(BIN)/geomprobe analyze --model $(MODEL) $(ARGS)) && \
	folder=$$(printf '%s\n' "$$said" | tail -n 1) && \
	folder=$$(cd "$$folder" && pwd) && \
	echo "The page: $$folder/report.html"
ifeq ($(MODEL),plain)
	@said=$$($(BIN)/geomprobe compare) && \
	folder=$$(printf '%s\n' "$$said" | tail -n 1) && \
	folder=$$(cd "$$folder" && pwd) && \
	echo "It and its twin with QK norm, side by side: $$folder/compare.html"
endif

test: $(CHECKS)
	$(BIN)/python -m pytest -m "not architectures" $(TESTS)

# Not on every model type, whose list is that of one release, nor on real checkpoints.
lowest $(LOWEST): VENV := .venv-lowest
lowest: $(LOWEST)
	$(BIN)/python -m pytest --ignore tests/architectures --ignore tests/browser -m "not real" $(TESTS)

# What the page says is made anew beside it, and takes its place when whole.
architectures: $(CHECKS)
	$(BIN)/python -m pytest -m architectures tests/architectures
	$(BIN)/python -m reports.architectures > docs/architectures.md.new
	mv docs/architectures.md.new docs/architectures.md

check: $(CHECKS)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell

# The theme warns of its successor on every build; that is no fault of a page.
docs: $(CHECKS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "The documentation: $(CURDIR)/site/index.html"

# One of them reads a checkpoint that the package index serves.
notebooks: $(CHECKS)
	$(BIN)/python -m reports.notebooks

format: $(CHECKS)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .venv-lowest build dist site geomprobe.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A Python that is too old, or none, is told in one line; a half-made environment is made whole.
define environment
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
has=$$($(PYTHON) -c 'import platform; print(platform.python_version())' 2>/dev/null || echo missing); \
echo "geomprobe needs Python 3.11 or newer; $(PYTHON) is $$has. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; \
exit 1; }
@$(PIP) --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
endef

$(RUNS): $(WANTED)
	$(environment)
	$(PIP) install -c constraints.txt -e .
	@touch $@

$(CHECKS): $(WANTED)
	$(environment)
	$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $(RUNS) $@

$(LOWEST): pyproject.toml constraints-lowest.txt
	$(environment)
	$(PIP) install -c constraints-lowest.txt -e . pytest
	@touch $@
