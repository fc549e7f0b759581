# Everything is installed into .venv; Python >= 3.11 and make are all that is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCES := webhook certs tests bench examples image docs/site

# Where it is set, as in many images, each of the hundreds of processes of the tests would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help venv run serve cluster test fuzz mutants test-cluster image docs check golden bench bench-cluster bench-scale bench-rehearse bench-floor chaos bench-peers lock

help: ## Show these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "make %-13s  %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

venv: $(STAMP) ## Make the environment in .venv

# Each stamp is written last: what was interrupted is done again.
$(STAMP): pyproject.toml $(VENV)/.locked
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.locked: requirements/dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "spotgate needs Python 3.11 or newer, and '$(PYTHON)' is not: name one, as in 'make venv PYTHON=python3.12'." >&2; exit 1; }
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement $<
	@touch $@

run: venv ## Start the webhook on an embedded cluster state and send it the examples
	$(BIN)/python examples/run.py

serve: venv ## The same, and leave it serving
	$(BIN)/python examples/run.py --serve

# KUBERNETES=1.35.4 is for `cluster` and `test-cluster`: that version, built once, in the place of the newest.
ASSETS = $(if $(KUBERNETES),KUBEBUILDER_ASSETS="$$($(BIN)/python -m tests.controlplane.assets $(KUBERNETES))" && export KUBEBUILDER_ASSETS &&)

cluster: venv ## Start a small Kubernetes cluster with fake spot nodes and the webhook, until Ctrl-C; POLICIES=DIR adds yours
	$(ASSETS) $(BIN)/python -m tests.controlplane.run $(POLICIES)

test: venv ## Run all tests that need no control plane
	$(BIN)/pytest -n auto --dist worksteal --ignore=tests/controlplane --ignore=tests/image --ignore=tests/rehearse

TARGET ?= manifests
SECONDS ?= 60
fuzz: venv ## Fuzz an input for SECONDS: TARGET=reviews, manifests, policies, project, providers, policytests or recordings
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/fuzz.txt
	$(BIN)/python -m tests.fuzz.run $(TARGET) $(SECONDS)

mutants: venv ## Measure the mutation score of engine, rules, capacity and policy on a sample of 600 mutants
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes --requirement requirements/mutants.txt
	$(BIN)/python -m tests.mutants

# Three workers, also on two processors, as each waits a third of its time. GOGC: a control plane collects garbage less often.
test-cluster: venv ## Run the tests on a real API server; the first run builds it from Go modules, which takes minutes
	$(ASSETS) GOGC=400 $(BIN)/pytest -n 3 -m "not alone" tests/controlplane tests/rehearse
	$(ASSETS) GOGC=400 $(BIN)/pytest -m alone tests/controlplane

image: venv ## Build the image twice on a base made here, look into it and start it; needs root, buildah and debootstrap
	$(BIN)/pytest $(IMAGE_TESTS) tests/image

docs: venv ## Build the site into site/; a link that leads nowhere is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

check: venv ## Lint, check formatting, types and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(SOURCES)
	$(BIN)/lint-imports

golden: venv ## Write anew what the program says: golden answers, reports and messages, tables of pages, schema, webhooks
	$(BIN)/spotgate schema > policies/schema.json
	$(BIN)/spotgate webhook-config > manifests/webhooks/webhooks.yaml
	$(BIN)/python -m tests.reference
	$(BIN)/python -m tests.golden.regenerate
	$(BIN)/python -m tests.integrations.repos

# Memory is freed as in the image; see the Dockerfile.
AS_IN_IMAGE := MALLOC_TRIM_THRESHOLD_=524288 MALLOC_MMAP_THRESHOLD_=524288

bench: venv ## Measure latency and throughput
	$(AS_IN_IMAGE) $(BIN)/python bench/run.py

bench-cluster: venv ## Measure at a real API server, beside a webhook in Go and the built-in policies
	$(AS_IN_IMAGE) $(BIN)/python -m bench.cluster

bench-scale: venv ## Measure on a real API server with 15,000 Nodes: time to ready, memory, CPU at rest, staleness, latency
	$(AS_IN_IMAGE) $(BIN)/python -m bench.scale

bench-rehearse: venv ## Measure rehearsals of 100 nodes with 1,000 Pods, and of 1,000 with 10,000
	$(BIN)/python -m bench.rehearse

bench-floor: venv ## Measure the on-demand floor, and count violations while leaders die and pause
	$(BIN)/python -m bench.floor

chaos: venv ## Count wrong verdicts at a real API server while replicas, certificates, etcd and hostile clients do their worst
	$(BIN)/python -m bench.chaos

bench-peers: venv ## Measure `check` beside gator and kyverno, on the same manifests
	$(BIN)/python -m bench.peers

# Compiled for every platform and Python >= 3.11; dev holds runtime's very versions. `make lock UPGRADE=--upgrade` takes newer ones.
LOCK := .lock-venv
COMPILE = $(LOCK)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links --no-annotate $(UPGRADE)

lock: ## Pin the dependencies with their hashes in requirements/
	$(PYTHON) -m venv --clear $(LOCK)
	$(LOCK)/bin/pip install --quiet --disable-pip-version-check uv
	$(COMPILE) pyproject.toml --output-file requirements/runtime.txt
	$(COMPILE) pyproject.toml --group dev --constraint requirements/runtime.txt --output-file requirements/dev.txt
	$(COMPILE) --group build --constraint requirements/dev.txt --output-file requirements/build.txt
	$(COMPILE) --group fuzz --output-file requirements/fuzz.txt
	$(COMPILE) --group mutants --constraint requirements/dev.txt --output-file requirements/mutants.txt
	rm -rf $(LOCK)
