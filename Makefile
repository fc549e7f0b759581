# Prerequisites: Python 3.11 or later and make. Everything is installed into .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := webhook certs tests bench examples image docs/site

# Many images set this variable. Each of the hundreds of test processes would then compile all modules again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv run serve cluster test fuzz mutants test-cluster test-node image docs check hooks golden bench bench-cluster bench-scale bench-rehearse bench-floor bench-notice chaos bench-peers lock

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-14s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## Create the environment in .venv

# Each stamp is written last, so that make repeats an interrupted step.
$(STAMP): pyproject.toml $(VENV)/.locked
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.locked: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "spotgate needs Python 3.11 or later, and '$(PYTHON)' is older: pass another one, as in 'make venv PYTHON=python3.12'." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

# What only some targets need: `docs` installs requirements/docs.txt, for example.
$(VENV)/.%: requirements/%.txt $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

run: venv ## Start the webhook, send it example requests, print its decisions, and end
	$(BIN)/python examples/run.py

serve: venv ## Do the same as `run`, and keep the webhook running until Ctrl-C
	$(BIN)/python examples/run.py --serve

# KUBERNETES=1.35.4 selects a version for `cluster` and `test-cluster`, instead of the newest. The first run builds it.
ASSETS = $(if $(KUBERNETES),KUBEBUILDER_ASSETS="$$($(BIN)/python -m tests.controlplane.assets $(KUBERNETES))" && export KUBEBUILDER_ASSETS &&)

cluster: $(VENV)/.cluster ## Start a local Kubernetes cluster with fake spot nodes and the webhook; POLICIES=DIR adds your policies, CONTROLLER=1 the controllers
	$(ASSETS) $(BIN)/python -m tests.controlplane.run $(if $(CONTROLLER),--controller) $(POLICIES)

# The tests of other targets.
OTHERS := --ignore=tests/image --ignore=tests/node --ignore=tests/site

test: venv ## Run all tests that need no control plane, and build no program
	$(BIN)/pytest -n auto --dist worksteal -m "not cluster" $(OTHERS) --ignore=tests/controlplane --ignore=tests/rehearse

TARGET ?= manifests
SECONDS ?= 60
fuzz: $(VENV)/.fuzz ## Fuzz an input for SECONDS: TARGET=reviews, manifests, policies, project, providers, policytests, or recordings
	$(BIN)/python -m tests.fuzz.run $(TARGET) $(SECONDS)

mutants: $(VENV)/.mutants ## Measure the mutation score of engine, rules, capacity, and policy on a sample of 600 mutants
	$(BIN)/python -m tests.mutants

# Five workers even on two processors, because each waits more than half of the time. GOGC and GOMAXPROCS reduce the CPU
# time of the servers: about twenty run at once.
test-cluster: $(VENV)/.cluster ## Run the tests that need a real API server or other programs; the first run builds them, which takes minutes
	$(ASSETS) $(BIN)/python -m tests.prepare
	$(ASSETS) GOGC=400 GOMAXPROCS=1 $(BIN)/pytest -n 5 -m cluster

test-node: $(VENV)/.cluster ## Stop Pods and give them notice on a real kubelet; needs root on Linux, and the first run builds it, which takes minutes
	$(BIN)/pytest tests/node

image: $(VENV)/.build $(VENV)/.cluster ## Build the image twice, compare, inspect, and start it; needs root, buildah, and debootstrap
	$(BIN)/pytest $(IMAGE_TESTS) tests/image

docs: $(VENV)/.docs ## Build the site into site/, and test it; broken links are errors
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	$(BIN)/pytest --quiet tests/site

check: $(VENV)/.check ## Check lint, formatting, types, and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(SOURCES)
	$(BIN)/lint-imports

hooks: $(VENV)/.check $(VENV)/.hooks ## Run a part of `check` before each commit
	$(BIN)/pre-commit install

golden: venv ## Regenerate golden files, the schema, the webhooks, and the generated parts of docs/
	$(BIN)/spotgate schema > policies/schema.json
	$(BIN)/spotgate webhook-config > manifests/webhooks/webhooks.yaml
	$(BIN)/python -m tests.docs.reference
	$(BIN)/python -m tests.golden.regenerate
	$(BIN)/python -m tests.integrations.repos

# Use the memory settings of the image: see the Dockerfile.
AS_IN_IMAGE := MALLOC_TRIM_THRESHOLD_=524288 MALLOC_MMAP_THRESHOLD_=524288

bench: venv ## Measure latency and throughput
	$(AS_IN_IMAGE) $(BIN)/python bench/run.py

bench-cluster: $(VENV)/.cluster ## Compare with a webhook in Go and the built-in policies, on a real API server
	$(AS_IN_IMAGE) $(BIN)/python -m bench.cluster

bench-scale: $(VENV)/.cluster ## Measure readiness, memory, CPU, staleness, and latency, on a real API server with 15,000 Nodes
	$(AS_IN_IMAGE) $(BIN)/python -m bench.scale

bench-rehearse: $(VENV)/.cluster ## Measure rehearsals of 100 nodes with 1,000 Pods, and of 1,000 nodes with 10,000 Pods
	$(BIN)/python -m bench.rehearse

bench-floor: $(VENV)/.cluster ## Measure the on-demand floor, and count violations while leaders die and pause
	$(BIN)/python -m bench.floor

bench-notice: $(VENV)/.cluster ## Measure how fast Pods learn of a reclaim, and count violations while leaders die
	$(BIN)/python -m bench.notice

chaos: $(VENV)/.cluster ## Count wrong verdicts on a real API server during faults of replicas, certificates, etcd, and hostile clients
	$(BIN)/python -m bench.chaos

bench-peers: $(VENV)/.cluster ## Compare `check` with gator, kyverno, and kubeconform, on the same manifests
	$(BIN)/python -m bench.peers

# Lock files for all platforms and Python 3.11 or later. dev uses the versions of runtime, and the others those of dev. `make lock UPGRADE=--upgrade` upgrades them.
LOCK := .lock-venv
COMPILE = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links --no-annotate $(UPGRADE)

lock: ## Lock the dependencies with their hashes in requirements/
	$(PYTHON) -m venv --clear $(LOCK)
	$(LOCK)/bin/pip install --quiet --disable-pip-version-check uv
	$(COMPILE) pyproject.toml --output-file requirements/runtime.txt
	$(COMPILE) pyproject.toml --group dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
	for group in build check cluster docs hooks mutants; do \
		$(COMPILE) --group $$group --constraint requirements/dev.txt --output-file requirements/$$group.txt || exit 1; done
	$(COMPILE) --group fuzz --output-file requirements/fuzz.txt
	rm -rf $(LOCK)
