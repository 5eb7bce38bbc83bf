# Everything runs in .venv, which is made on first use.  Needs Python 3.11+, make and a C++ compiler.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.stamp
NATIVE := native/CMakeLists.txt $(wildcard native/*/*.cc native/*/*.h native/*/*/*.h native/cmake/*)

.DEFAULT_GOAL := help
.PHONY: help demo test nightly torch check fuzz mutation bench sanitize browser editor docs clean

help: ## list these targets
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

$(STAMP): pyproject.toml $(NATIVE)
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "symalloc needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable . --group dev
	@touch $@

demo: $(STAMP) ## lint, plan and run real modules
	@$(BIN)/python examples/demo.py

# byte code is kept, out of the source tree: half of the time that pytest takes to find the tests
test nightly torch: export PYTHONDONTWRITEBYTECODE =
test nightly torch: export PYTHONPYCACHEPREFIX = $(CURDIR)/$(VENV)/pycache

test: $(STAMP) ## run the tests
	$(BIN)/python -m pytest -n 2 --max-worker-restart=0

nightly: $(STAMP) ## run the tests with all of each campaign, optimised kernels and long networks
	SYMALLOC_TESTS=nightly $(BIN)/python -m pytest -n 2 --max-worker-restart=0

torch: $(STAMP) ## models of torch, from files and in memory, beside torch itself; installs the extra
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[torch]'
	SYMALLOC_TESTS=nightly $(BIN)/python -m pytest -n 2 tests/relax/read tests/models/test_torch_files.py

check: $(STAMP) ## ruff, mypy --strict, the import table
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_imports.py

sanitize: $(STAMP) ## the native core under AddressSanitizer, ThreadSanitizer and UndefinedBehaviorSanitizer
	$(BIN)/python -m pytest -n 0 -m sanitize

browser: $(STAMP) ## the memory map in Chromium, which must be installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group browser
	$(BIN)/python -m pytest -n 0 -m browser tests/browser

editor: $(STAMP) ## the language server in a process of its own, and how long a check takes
	$(BIN)/python -m pytest -n 0 -m editor tests/editor -s

fuzz: $(STAMP) ## random constraints and kernels against brute force, z3 and execution (COUNT=20000 KERNELS=5000)
	$(BIN)/python -m benchmarks.fuzz_prove --count $(or $(COUNT),20000)
	$(BIN)/python -m benchmarks.fuzz_kernels --kernels $(or $(KERNELS),5000)

mutation: $(STAMP) ## planted faults: each real one reported by a fitting rule, no harmless one reported
	$(BIN)/python -m benchmarks.mutation_vm --tries 1 --seed 1

bench: $(STAMP) ## benchmarks: lint and plan against relax.build, calls, packing, models, the pool
	$(BIN)/python -m benchmarks.lint_llama
	$(BIN)/python -m benchmarks.plan_llama
	$(BIN)/python -m benchmarks.plan_overhead
	$(BIN)/python -m benchmarks.pack --count 20
	$(BIN)/python -m benchmarks.ablate
	$(BIN)/python -m benchmarks.plan_models
	$(BIN)/python -m benchmarks.plan_zoo
	$(BIN)/python -m benchmarks.plan_targets
	$(BIN)/python -m benchmarks.plan_random --seeds 0..200
	$(BIN)/python -m benchmarks.pool_vm
	$(BIN)/python -m benchmarks.pool_lifetime
	$(BIN)/python -m benchmarks.pool_adversaries
	$(BIN)/python -m tests.models.pooled 500

docs: $(STAMP) ## the documentation as a site, in build/site
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --group docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

clean: ## remove the environment and caches
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
