# Everything a newcomer needs: `make run` (results), `make test` (checks), `make bench` (speed). Needs Python >= 3.11, make, git.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
CONFIG ?= configs/default.yaml
CORES ?= all
comma := ,
VENV := .venv
BIN := $(VENV)/bin

# `make test` has the driver bindings too: how the driver is called is tested against a stand-in.
# With a GPU the measurement rules need the driver bindings, and PyTorch for the kernels that live in its extensions.
GPUS := $(shell nvidia-smi -L 2>/dev/null | grep -c '^GPU' || true)
RUN_EXTRAS := kernels$(if $(filter-out 0,$(GPUS)),$(comma)gpu$(comma)torch)
RUN_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(RUN_EXTRAS))
TEST_EXTRAS := dev,kernels,gpu,slurm
TEST_STAMP := $(VENV)/.installed-$(subst $(comma),-,$(TEST_EXTRAS))
# Tests share the cores, file by file as far as that goes; those of a real GPU, some of which time it, have it for themselves.
TEST_WORKERS ?= $(if $(filter-out 0,$(GPUS)),0,logical)

.PHONY: help run test test-slurm lint fmt bench ablation headline clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(firstword $(MAKEFILE_LIST)) | sed -E 's/:[^#]*##/\t/' | expand -t 12

$(BIN)/python:
	@echo "==> creating $(VENV) with $(PYTHON)"
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "error: Python 3.11 or newer is needed; set PYTHON=..." >&2; exit 2; }
	"$(PYTHON)" -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check -q --upgrade 'pip>=24.1'

$(RUN_STAMP): pyproject.toml | $(BIN)/python
	@echo "==> installing xtrace[$(RUN_EXTRAS)]"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -e '.[$(RUN_EXTRAS)]'
	@touch $@

$(TEST_STAMP): pyproject.toml | $(BIN)/python
	@echo "==> installing xtrace[$(TEST_EXTRAS)]"
	$(BIN)/python -m pip install --disable-pip-version-check --progress-bar off -q -e '.[$(TEST_EXTRAS)]'
	@touch $@

run: $(RUN_STAMP)  ## build kernels, splice, verify, compare, (measure,) report -> results/report.html
	$(BIN)/snakemake --cores $(CORES) --configfile $(CONFIG)

lint: $(TEST_STAMP)  ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow/rules

test: lint  ## lint + all tests that this machine can run (gpu and slurm tests are skipped visibly)
	XTRACE_REQUIRE=$${XTRACE_REQUIRE-golden,network} $(BIN)/pytest -n $(TEST_WORKERS) --maxprocesses 8 --dist worksteal

test-slurm: $(TEST_STAMP)  ## start a one-node Slurm (root; slurm-wlm, munge), run its tests, take it down whatever happens
	tests/slurm/single_node.sh up 2; trap 'tests/slurm/single_node.sh down' EXIT; \
	XTRACE_REQUIRE=slurm $(BIN)/pytest -m slurm tests/slurm

bench: $(RUN_STAMP)  ## time plan, splice and verify on one core, against their targets
	$(BIN)/python workflow/scripts/benchmark.py

ablation: $(RUN_STAMP)  ## after make run, with a GPU: what each optimisation of the probes is worth
	$(BIN)/python workflow/scripts/ablation.py --out results/ablation-run

headline: $(RUN_STAMP)  ## print the headline numbers of the last run
	@$(BIN)/python -m workflow.scripts.headline results

fmt: $(TEST_STAMP)  ## format everything
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/snakefmt Snakefile workflow/rules

clean:  ## remove fresh results, caches and the environment (results/recorded stays)
	find results -mindepth 1 -maxdepth 1 ! -name recorded ! -name README.md -exec rm -rf {} +
	rm -rf $(VENV) .cache .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
