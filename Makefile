# make demo   run a federation of four hospitals on real data, from nothing but a Python
# make test   run every check and the default tier of the tests, in minutes
# make help   list the rest

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip
# Warnings about root and about newer pips are noise in a private environment.
export PIP_ROOT_USER_ACTION := ignore
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# Three processes share the tests: most of them wait for a database, a socket or another process.
WORKERS := -n 3 --dist worksteal
# None of them computes with threads of its own, which would only wait for the others'.
test test-all audit: export OPENBLAS_NUM_THREADS := 1

# The stamps change when what is to be installed changes, and only after an install that succeeded.
LOCK := pyproject.toml $(wildcard requirements/*.txt)
RUNTIME := $(VENV)/.installed-runtime
DEVELOPMENT := $(VENV)/.installed-development

.PHONY: help
help: ## list the targets
	@sed -nE 's/^([a-z-]+):.*## (.*)/make \1\t\2/p' Makefile | column -t -s "$$(printf '\t')"

.PHONY: demo
demo: $(RUNTIME) ## four hospitals ask one question of their real data; DEMO_FLAGS=--all asks every system, --keep-running leaves it up
	@$(BIN)/$(if $(filter --all,$(DEMO_FLAGS)),python -m examples.all_systems,tacit demo) $(filter-out --all,$(DEMO_FLAGS))

.PHONY: test
test: check ## every check, then the default tier of the tests, in minutes; TEST_FLAGS="tests/protocol -x" narrows it
	$(BIN)/python -m pytest $(WORKERS) -m "not long" $(TEST_FLAGS)

.PHONY: test-all
test-all: check ## every check, then every test; TEST_FLAGS="-m long" leaves out what make test runs
	$(BIN)/python -m pytest $(WORKERS) $(TEST_FLAGS)

.PHONY: check
check: $(DEVELOPMENT) ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

.PHONY: docs
docs: $(DEVELOPMENT) ## the documentation as a site, in build/docs; a warning is an error
	$(BIN)/sphinx-build --quiet --fail-on-warning --keep-going -c docs/site -d build/doctrees . build/docs
	@echo "The site is in build/docs: open build/docs/index.html"

.PHONY: bench
bench: $(DEVELOPMENT) ## speed, levels and powers (hours), load: the tables in docs; CURATOR_FLAGS="--runs 0.02" for a glance
	$(BIN)/python -m benchmarks.hot_paths
	$(BIN)/python -m benchmarks.two_sample $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.p0 $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.hospitals $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.joint_independence $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.categorical $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.strata $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.groups $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.identity $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.distance_correlation $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.p4 $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.screening $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.planning $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.database_release $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.database_queries $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.database_errors $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.two_owners
	$(BIN)/python -m benchmarks.two_owners --aligned
	$(BIN)/python -m benchmarks.scale $(SCALE_FLAGS)
	$(BIN)/python -m benchmarks.load
	$(BIN)/python -m benchmarks.costs
	$(BIN)/python -m benchmarks.thousand_owners
	$(BIN)/python -m benchmarks.worker_model
	$(BIN)/python -m benchmarks.long_polls

.PHONY: bench-coverage
bench-coverage: $(DEVELOPMENT) ## what every stated interval covers, and the worst cell (hours); CURATOR_FLAGS="--runs 0.1" for a glance
	$(BIN)/python -m benchmarks.coverage $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.distance_correlation $(CURATOR_FLAGS)
	$(BIN)/python -m benchmarks.database_errors --page database-errors $(CURATOR_FLAGS)

.PHONY: audit
audit: $(DEVELOPMENT) ## the adversarial searches and attacks alone, slow ones included
	TACIT_LONG=1 $(BIN)/python -m pytest $(wildcard tests/attacks tests/audits tests/faults) $(WORKERS) $(TEST_FLAGS)

.PHONY: lock
lock: ## resolve the newest versions afresh and write requirements/*.txt, with hashes
	@.ci/lock "$$(.ci/find-python)"

.PHONY: release
release: $(DEVELOPMENT) ## the wheel, its bill of materials and its provenance, in dist; RELEASE_KEY_FILE=key.pem signs it
	@.ci/release

.PHONY: clean
clean: ## remove the environment, caches and the demo's folder
	rm -rf $(VENV) demo-federation build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(RUNTIME): $(LOCK)
	@.ci/install runtime
	@touch $@

$(DEVELOPMENT): $(LOCK)
	@.ci/install dev
	@touch $(RUNTIME) $@
