# Each target builds its prerequisites. `make` without a target lists the targets.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
K ?=
# Tests start hundreds of processes: without its bytecode, each compiles all of policyd.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test browser extras check house hooks docs release coverage fix e2e conformance properties fuzz mutations mutants histories soak attacks bench bench-dashboard bench-preemption bench-forecast bench-backfill bench-dispatch what-ifs replayed-week prove controlplane monitoring generate constraints advisories clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 20

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "policyd needs Python 3.11 or newer: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	@echo "setting up $(VENV) ..."
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

run: $(STAMP) ## start policyd on an embedded cluster and print commands to try (Ctrl-C stops it); ARGS="--nodes 16"
	@$(BIN)/policyd up $(ARGS)

test: $(STAMP) ## run the tests that need no cluster; K=words selects tests by name
	@$(BIN)/pytest -n auto --maxprocesses=8 -m "not e2e and not bench and not browser" $(if $(K),-k "$(K)")

check: $(STAMP) ## check format, lint, types, layers, the image, and dependencies for known vulnerabilities
	@failed=; \
	$(BIN)/ruff format --check . || failed+=" format"; \
	$(BIN)/ruff check . || failed+=" lint"; \
	$(BIN)/mypy || failed+=" types"; \
	if test -x $(BIN)/ty; then $(BIN)/ty check --quiet || failed+=" public-types"; else echo "public-types: skipped, as ty is not installed"; fi; \
	$(BIN)/lint-imports || failed+=" layers"; \
	$(BIN)/hadolint charts/policyd/image/Dockerfile || failed+=" image"; \
	$(BIN)/python -m tests.audit || failed+=" audit"; \
	test -z "$$failed" || { echo "failed:$$failed"; exit 1; }

house: $(STAMP) ## print figures of the code's structure with their targets: ALL=1 lists names and files, STRICT=1 fails if a target is missed, JSON=FILE
	@$(BIN)/python -m tests.house $(if $(ALL),--all) $(if $(STRICT),--strict) $(if $(JSON),--json $(JSON))

hooks: $(STAMP) ## install git hooks that check each commit: format, lint, types, layers, policy cases
	@$(BIN)/pre-commit install

docs: $(STAMP) ## build docs/ as a site with search, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "open build/site/index.html"

release: $(STAMP) ## make a release: changelog, version, commit, tag, build: VERSION=1.2.3, DRY=1 only prints the steps
	@$(BIN)/python -m tests.release $(or $(VERSION),"") $(if $(DRY),--dry)

coverage: $(STAMP) ## print the branch coverage of the pure core, and fail below the minimum; 11 minutes on one core
	@$(BIN)/pytest -q -n auto --maxprocesses=8 -m "not e2e and not bench and not browser" --cov --cov-report=term \
		tests/alloc tests/api tests/cel tests/engine tests/patch tests/registration tests/workload

fix: $(STAMP) ## format the code, and apply safe lint fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

controlplane: ## build a real Kubernetes control plane for the tests, in a per-user cache
	@tests/controlplane/build.sh

# Files that take minutes begin first, so that no process is left alone with one at the end. Much of
# the time is spent waiting for clusters: three processes keep two cores busy.
LONG_FIRST := tests/docs/test_consoles.py tests/e2e/test_takeover.py tests/live tests/scenarios/test_multikueue.py \
	tests/scenarios/test_variants.py tests/charts tests/soak tests/matrix
# The others are named, too: to collect all tests takes each process a minute.
WITH_CLUSTER = tests/scenarios $(shell grep -rl --include='test_*.py' 'mark\.e2e' tests)

e2e: $(STAMP) controlplane ## run the end-to-end tests against a real kube-apiserver
	@$(BIN)/pytest -m e2e -n 3 --dist loadfile --no-loadscope-reorder $(LONG_FIRST) $(WITH_CLUSTER) $(if $(K),-k "$(K)")

browser: $(STAMP) controlplane ## look at the page in Chromium, which is installed if it is missing: K=words, SCREENSHOTS=1 writes docs/images
	@code=0; tests/browser/install.sh $(BIN)/python || code=$$?; \
	if test $$code = 3; then echo "browser: skipped, as it cannot be installed here"; exit 0; fi; test $$code = 0 || exit $$code; \
	$(if $(SCREENSHOTS),POLICYD_SCREENSHOTS=1) $(BIN)/pytest -q -m browser tests/browser $(if $(K),-k "$(K)")

extras: ## install the extras (ray, ortools, matplotlib, z3) beside the environment, and run their tests; K=words selects
	@test -x build/extras/bin/python || $(PYTHON) -m venv build/extras
	@build/extras/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,optimum,plots,prove,ray]'
	@build/extras/bin/pytest -q tests/cli/planning tests/cli/policies/test_proving.py tests/cli/prove tests/cli/usage/test_bad_answers.py tests/prove $(if $(K),-k "$(K)")

conformance: $(STAMP) ## run the external conformance suites: SUITE=cel|policy|kueue-core|..., JSON=FILE
	@$(BIN)/python -m tests.conformance $(if $(SUITE),--suite $(SUITE)) $(if $(JSON),--json $(JSON))

properties: $(STAMP) ## test invariants of the core, N=10000 examples each; 15 minutes on two cores; K=words selects
	@$(BIN)/python -m tests.properties $(or $(N),10000) $(K)

fuzz: $(STAMP) ## compare generated CEL expressions, compiled, with the reference evaluator: N=100000; COST=1 measures their time
	@$(BIN)/python -m tests.cel.fuzz $(if $(COST),--cost $(or $(N),3000),$(or $(N),10000))

mutations: $(STAMP) ## run each command on N=10000 files with small errors: none may end in a traceback; K=check selects a command
	@$(BIN)/python -m tests.cli.mutations $(or $(N),10000) $(K)

conformance-live: $(STAMP) controlplane ## run the cases of native policies and of the library on a real API server too, or compare what policyd apply says of N edits of their objects: ONLY=vap, JSON=FILE, OFFLINE=N, SEED=1
	@$(BIN)/python -m tests.live $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON)) $(if $(OFFLINE),--offline $(OFFLINE)) $(if $(SEED),--seed $(SEED))
	$(if $(ONLY)$(OFFLINE),,@POLICYD_WHOLE_LIBRARY=1 $(BIN)/pytest -q -m e2e tests/live/test_library.py)

mutants: $(STAMP) ## put N=300 small errors into the product, one by one, and see which no test notices: SEED=1, ONLY=policyd/alloc, JSON=FILE
	@$(BIN)/python -m tests.mutants $(or $(N),300) $(if $(SEED),--seed $(SEED)) $(if $(ONLY),--only $(ONLY)) $(if $(JSON),--json $(JSON))

histories: $(STAMP) ## live through N=1000 histories of a cluster in simulated time, and judge them: SEED=0, JSON=FILE, REPLAY=FILE; SIZE=100,500,5000 is a day of so many queues, nodes and workloads; PLANTED=1 plants bugs, ONLY=words those
	@$(BIN)/python -m tests.histories$(if $(PLANTED),.planted) $(if $(N),-n $(N)) $(if $(SEED),--seed $(SEED)) $(if $(JSON),--json $(JSON)) $(if $(REPLAY),--replay $(REPLAY)) $(if $(ONLY),--only "$(ONLY)") $(if $(SIZE),--size $(SIZE))

faults: $(STAMP) controlplane ## inject faults into a real control plane, and check the whole history: ONLY=words, KILLS=200
	@$(BIN)/python -m tests.faults $(if $(ONLY),--only "$(ONLY)") $(if $(KILLS),--kills $(KILLS))

soak: $(STAMP) controlplane ## run random jobs of all kinds on a real control plane, and check them: MINUTES=30, SEED=, SCHEMAS=slim|full|kueue, JSON=FILE
	@$(BIN)/python -m tests.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED)) $(if $(SCHEMAS),--schemas $(SCHEMAS)) $(if $(JSON),--json $(JSON)) $(if $(LOGS),--logs $(LOGS))

matrix: $(STAMP) controlplane ## run each kind of job with each feature on both clusters: ONLY=words, SERVER=embedded|real, GATES=A=true, SCHEMAS=slim|full|kueue, JSON=FILE
	@$(BIN)/python -m tests.matrix $(if $(ONLY),--only "$(ONLY)") $(if $(SERVER),--server $(SERVER)) $(if $(GATES),--gates $(GATES)) $(if $(SCHEMAS),--schemas $(SCHEMAS)) $(if $(JSON),--json $(JSON))

attacks: $(STAMP) controlplane ## attempt to bypass the policies and to stall the webhooks, and print a table: ONLY=words, JSON=FILE
	@$(BIN)/python -m tests.attacks $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json $(JSON))

bench: $(STAMP) ## run the benchmarks, and print the figures as a table
	@$(BIN)/pytest -m bench tests/bench -q -s $(if $(K),-k "$(K)")

bench-dashboard: $(STAMP) ## measure the page with 10,000 pending jobs, 5,000 nodes and 200 viewers
	@$(BIN)/pytest -m bench tests/bench/test_dashboard.py -q -s

bench-webhooks: $(STAMP) controlplane ## measure the cost of a pod for a real API server: without webhooks, with native policies, empty webhooks, policyd
	@$(BIN)/python -m tests.bench_webhooks $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JSON),--json $(JSON))

bench-door: # the former name, for one release
	@echo "make: bench-door was renamed to bench-webhooks" >&2
	@$(MAKE) --no-print-directory bench-webhooks

bench-cluster: $(STAMP) controlplane ## run Kueue's load test on a real API server: LOAD=baseline|topology|large-scale|start, SHARE=0.1, ACCOUNTS=chart, JSON=FILE
	@$(BIN)/python -m tests.bench_cluster $(if $(LOAD),--load $(LOAD)) $(if $(SHARE),--share $(SHARE)) $(if $(ACCOUNTS),--accounts $(ACCOUNTS)) $(if $(JSON),--json $(JSON))

bench-preemption: $(STAMP) ## what preemption costs in simulated time, with Kueue's timing and with policyd's: SHARE=0.2, SEEDS=3, WRITE=0.015 seconds of a write, STRICT=1, ONLY=words, JSON=FILE
	@$(BIN)/python -m tests.bench_cluster.virtual $(if $(SHARE),--share $(SHARE)) $(if $(SEEDS),--seeds $(SEEDS)) $(if $(WRITE),--write $(WRITE)) $(if $(STRICT),--strict) $(if $(ONLY),--only "$(ONLY)") $(if $(JSON),--json $(JSON))

bench-forecast: $(STAMP) ## forecast starts on a trace, and compare them with what then happens: TRACE=FILE, LOAD="0.7 0.9", SAMPLES=of each size, JUDGE="0.6 0.8", WORKERS=, RAY=ADDRESS, JSON=FILE
	@$(BIN)/python -m tests.bench_forecast $(if $(TRACE),--trace $(TRACE)) $(if $(LOAD),--load $(LOAD)) $(if $(SAMPLES),--samples $(SAMPLES)) $(if $(JUDGE),--judge $(JUDGE)) $(if $(WORKERS),--workers $(WORKERS)) $(if $(RAY),--ray $(RAY)) $(if $(JSON),--json $(JSON))

bench-backfill: $(STAMP) ## reservation with backfill on a part of a trace, judged by waits: TRACE=FILE, JOBS=66000:70000, LOAD="0.9 1.1", AFTER="0.5" hours, JSON=FILE
	@$(BIN)/python -m tests.bench_backfill $(if $(TRACE),--trace $(TRACE)) $(if $(JOBS),--jobs $(JOBS)) $(if $(LOAD),--load $(LOAD)) $(if $(AFTER),--after $(AFTER)) $(if $(JSON),--json $(JSON))

bench-dispatch: $(STAMP) ## compare the waits of N=200 loads on three clusters by the dispatcher that sends them: SEED=0, JOBS=60
	@$(BIN)/python -m tests.bench_dispatch $(if $(N),-n $(N)) $(if $(SEED),--seed $(SEED)) $(if $(JOBS),--jobs $(JOBS))

what-ifs: $(STAMP) ## compare what-if's answers with what 500 random clusters then do: N=500, SEED=0
	@$(BIN)/python -m tests.what_ifs $(if $(N),-n $(N)) $(if $(SEED),--seed $(SEED))

replayed-week: $(STAMP) controlplane ## replay an audit log of a real API server, then enforce the policies, and compare each request: N=5000, SEED=0
	@$(BIN)/python -m tests.live.replayed_week $(if $(N),-n $(N)) $(if $(SEED),--seed $(SEED))

prove: $(STAMP) ## decide published policies, and let the engine judge proofs about N=2000 mutants of them: OBJECTS=5000, SEED=0
	@$(BIN)/python -m tests.prove $(if $(N),-n $(N)) $(if $(OBJECTS),--objects $(OBJECTS)) $(if $(SEED),--seed $(SEED))

generate: $(STAMP) controlplane ## regenerate the tables of Kubernetes, the CRDs and the reference pages
	@$(BIN)/python -m tests.controlplane.generate_kinds
	@$(BIN)/python -m tests.controlplane.generate_defaults
	@$(BIN)/python -m tests.generate_crds
	@$(BIN)/python -m tests.generate_docs
	@$(BIN)/python -m tests.monitoring.dashboards

constraints: ## regenerate constraints.txt from pyproject.toml
	@rm -rf .constraints && $(PYTHON) -m venv .constraints && .constraints/bin/pip install --quiet '.[dev,browser]'
	@{ echo "# Exact versions for development and CI. Renew: make constraints"; .constraints/bin/pip freeze --exclude policyd; } > constraints.txt
	@rm -rf .constraints

monitoring: $(STAMP) controlplane ## run every query of the dashboards and every alert rule in a real Prometheus that scrapes policyd under load
	@$(BIN)/python -m tests.monitoring
	@$(BIN)/pytest -q tests/monitoring/test_promtool.py tests/cli/usage/test_real_prometheus.py

advisories: $(STAMP) ## update tests/audit/advisories.json from the package registry
	@$(BIN)/python -m tests.audit.renew

clean: ## remove all build output, caches and the virtual environment
	@rm -rf $(VENV) .constraints dist build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .policyd .coverage
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
