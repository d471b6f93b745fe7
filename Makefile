# The two commands a newcomer needs are `make demo` and `make test`; both set everything up in .venv first.
# PYTHON=/path/to/python3.11 chooses the interpreter that makes the environment.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
OPENCL := $(VENV)/.opencl
SASS   := $(VENV)/.sass
CUDA   := $(VENV)/.cuda-wheels
PIP    := $(BIN)/python -m pip install --quiet --disable-pip-version-check
JOBS   ?= 2

.DEFAULT_GOAL := help
.PHONY: help demo test check lint types format bench clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' Makefile

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	    || { echo "ansor needs Python 3.11 or newer; say which: make PYTHON=/path/to/python3.11 ..."; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) -e '.[dev]'
	@touch $@

# OpenCL on the CPU, so that programs for GPUs run in every test run; without it their tests skip and say why.
$(OPENCL): $(STAMP)
	@$(PIP) -e '.[opencl]' && touch $@ \
	    || echo "there is no OpenCL for this machine: the tests that run programs for GPUs will skip and say why"

# NVIDIA's disassembler, so that machine code is looked at.
$(SASS): $(STAMP)
	@$(PIP) -e '.[sass]' && touch $@ \
	    || echo "there is no disassembler for this machine: the tests that look at machine code will skip and say why"

# NVIDIA's bindings and compiler, so that programs are compiled to machine code, and what is asked of the bindings
# is looked for in the real ones; neither takes a driver.
$(CUDA): $(STAMP)
	@$(PIP) -e '.[cuda-wheels]' && touch $@ \
	    || echo "there is no compiler for CUDA for this machine: the tests that compile for it will skip and say why"

demo: $(STAMP) ## Tune a 1024x1024x1024 matmul_add, check it, and show what came out
	$(BIN)/python -m experiments.demo

test: $(STAMP) $(OPENCL) $(SASS) $(CUDA) lint ## Lint, type check, import rules, then every test
	$(BIN)/python -m pytest -q -n $(JOBS)

lint: $(STAMP) ## Style, formatting, types and the import directions
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	$(BIN)/lint-imports

format: $(STAMP) ## Rewrite the sources in house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## Build, run and check milliseconds per trial; the catalogue beside numpy
	$(BIN)/python -m experiments.bench_main

clean: ## Remove the environment and everything generated
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache experiments/out
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
