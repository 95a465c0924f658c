# Every target makes what it needs. `make` alone lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
K ?=

.PHONY: help run test check house hooks docs release coverage fix e2e conformance properties fuzz mutations soak attacks bench controlplane generate constraints advisories clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 20

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "policyd needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: $(STAMP) ## start policyd with an embedded cluster, and say what to try (Ctrl-C ends it); ARGS="--nodes 16"
	@$(BIN)/policyd up $(ARGS)

test: $(STAMP) ## run the tests that need no cluster; K=words narrows them
	@$(BIN)/pytest -n auto --maxprocesses=8 -m "not e2e and not bench" $(if $(K),-k "$(K)")

check: $(STAMP) ## lint, types, layers, and known holes in what we depend on
	@failed=; \
	$(BIN)/ruff format --check . || failed+=" format"; \
	$(BIN)/ruff check . || failed+=" lint"; \
	$(BIN)/mypy || failed+=" types"; \
	if test -x $(BIN)/ty; then $(BIN)/ty check --quiet || failed+=" public-types"; else echo "public-types: skipped, as ty is not installed"; fi; \
	$(BIN)/lint-imports || failed+=" layers"; \
	$(BIN)/hadolint charts/policyd/image/Dockerfile || failed+=" image"; \
	$(BIN)/python -m tests.audit || failed+=" audit"; \
	test -z "$$failed" || { echo "does not pass:$$failed"; exit 1; }

house: $(STAMP) ## print figures of the product's shape with their targets: ALL=1 lists names and files, STRICT=1 fails if one is missed, JSON=FILE
	@$(BIN)/python -m tests.house $(if $(ALL),--all) $(if $(STRICT),--strict) $(if $(JSON),--json $(JSON))

hooks: $(STAMP) ## have git check each commit: format, lint, types, layers, policy cases
	@$(BIN)/pre-commit install

docs: $(STAMP) ## build the pages of docs/ as a site with a search, into build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

release: $(STAMP) ## cut the changelog, set the version, commit, tag and build: VERSION=1.2.3, DRY=1 only shows it
	@$(BIN)/python -m tests.release $(or $(VERSION),"") $(if $(DRY),--dry)

coverage: $(STAMP) ## print the branch coverage of the pure core by its own tests, and fail below the floor; 11 minutes on one core
	@$(BIN)/pytest -q -n auto --maxprocesses=8 -m "not e2e and not bench" --cov --cov-report=term \
		tests/alloc tests/api tests/cel tests/engine tests/patch tests/registration tests/workload

fix: $(STAMP) ## format, and mend what can be mended safely
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

controlplane: ## build a real Kubernetes control plane for the tests, into a per-user cache
	@tests/controlplane/build.sh

e2e: $(STAMP) controlplane ## run the end-to-end tests against a real kube-apiserver
	@$(BIN)/pytest -m e2e $(if $(K),-k "$(K)")

conformance: $(STAMP) ## run cases from outside: SUITE=cel|policy|kueue-core|..., JSON=FILE
	@$(BIN)/python -m tests.conformance $(if $(SUITE),--suite $(SUITE)) $(if $(JSON),--json $(JSON))

properties: $(STAMP) ## try what must always hold of the core, N=10000 examples each, in a quarter of an hour on two cores; K=words narrows it
	@$(BIN)/python -m tests.properties $(or $(N),10000) $(K)

fuzz: $(STAMP) ## make up CEL expressions, and compare compiled with reference: N=100000; COST=1 measures what they take
	@$(BIN)/python -m tests.cel.fuzz $(if $(COST),--cost $(or $(N),3000),$(or $(N),10000))

mutations: $(STAMP) ## give each command files that are nearly right, N=10000 each: none may end in a traceback; K=check narrows it
	@$(BIN)/python -m tests.cli.mutations $(or $(N),10000) $(K)

conformance-live: $(STAMP) controlplane ## run the cases of the API server's own policies on a real one, too: ONLY=vap, JSON=FILE
	@$(BIN)/python -m tests.live $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON))

faults: $(STAMP) controlplane ## break what can break on a real control plane, and judge the whole history: ONLY=words, KILLS=200
	@$(BIN)/python -m tests.faults $(if $(ONLY),--only "$(ONLY)") $(if $(KILLS),--kills $(KILLS))

soak: $(STAMP) controlplane ## random jobs of all kinds on a real control plane, and a judge of what became of them: MINUTES=30, SEED=, SCHEMAS=slim|full|kueue, JSON=FILE
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(SCHEMAS),--schemas $(SCHEMAS)) $(if $(JSON),--json $(JSON)) $(if $(LOGS),--logs $(LOGS))

matrix: $(STAMP) controlplane ## run every kind of job with every feature on both clusters: ONLY=words, SERVER=embedded|real, GATES=A=true, SCHEMAS=slim|full|kueue, JSON=FILE
	@$(BIN)/python -m tests.matrix $(if $(ONLY),--only "$(ONLY)") $(if $(SERVER),--server $(SERVER)) $(if $(GATES),--gates $(GATES)) $(if $(SCHEMAS),--schemas $(SCHEMAS)) $(if $(JSON),--json $(JSON))

attacks: $(STAMP) controlplane ## try to get round the policies and to stall them, and print a table: ONLY=words, JSON=FILE
	@$(BIN)/python -m tests.attacks $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json $(JSON))

bench: $(STAMP) ## measure, and print the figures as a table
	@$(BIN)/pytest -m bench tests/bench -q -s $(if $(K),-k "$(K)")

bench-webhooks: $(STAMP) controlplane ## measure what a pod costs a real API server: bare, with its own policies, empty webhooks, policyd
	@$(BIN)/python -m tests.bench_webhooks $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json $(JSON))

bench-door: # the name before, for one release
	@echo "make: bench-door is now called bench-webhooks" >&2
	@$(MAKE) --no-print-directory bench-webhooks

bench-cluster: $(STAMP) controlplane ## run Kueue's load on a real API server: LOAD=baseline|topology|large-scale|start, SHARE=0.1, ACCOUNTS=chart, JSON=FILE
	@$(BIN)/python -m tests.bench_cluster $(if $(LOAD),--load $(LOAD)) $(if $(SHARE),--share $(SHARE)) $(if $(ACCOUNTS),--accounts $(ACCOUNTS)) $(if $(JSON),--json $(JSON))

generate: $(STAMP) controlplane ## renew what is generated: tables of Kubernetes, CRDs, reference pages
	@$(BIN)/python -m tests.controlplane.generate_kinds
	@$(BIN)/python -m tests.generate_crds
	@$(BIN)/python -m tests.generate_docs

constraints: ## renew constraints.txt from pyproject.toml
	@rm -rf .constraints && $(PYTHON) -m venv .constraints && .constraints/bin/pip install --quiet '.[dev]'
	@{ echo "# Exact versions for development and CI. Renew: make constraints"; .constraints/bin/pip freeze --exclude policyd; } > constraints.txt
	@rm -rf .constraints

advisories: $(STAMP) ## renew tests/audit/advisories.json from the package registry, if that answers
	@$(BIN)/python -m tests.audit.renew

clean: ## remove what the other targets made
	@rm -rf $(VENV) .constraints dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .policyd .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
