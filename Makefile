# The two commands of the README: make demo, make test. Each sets up what it needs.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=

.PHONY: demo test coverage laws soak mutation lint check release sbom openapi bench versus suites policies lock clean controlplane leaderworkerset owners moreowners helm help

help: ## Print what each target does
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

# A lock names all that is installed. Without --no-deps, pip before 23.3 asks an index for the newest release of what
# is required with an extra (coverage[toml]), and fails as soon as that is not the pinned one.
$(VENV)/.run: requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Berth needs Python 3.11 or later; set PYTHON=/path/to/python3.11"; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Berth needs Python 3.11 or later, $(PYTHON) is older; set PYTHON=/path/to/python3.11"; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing Berth into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements-dev.lock
	@echo "Installing the test tools into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.lock
	@touch $@

$(VENV)/.mutation: $(VENV)/.dev requirements-mutation.lock
	@echo "Installing mutmut into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-mutation.lock
	@touch $@

$(VENV)/.sbom: $(VENV)/.run requirements-sbom.lock
	@echo "Installing cyclonedx-bom into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-sbom.lock
	@touch $@

$(VENV)/.openapi: $(VENV)/.dev requirements-openapi.lock
	@echo "Installing schemathesis into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r requirements-openapi.lock
	@touch $@

demo: $(VENV)/.run ## The main job on one machine: three teams, 16 simulated GPU nodes, real Jobs, under two minutes
	@$(BIN)/berth demo

test: $(VENV)/.dev ## All tests; what cannot be had on this machine is named in one line and skipped
	@$(BIN)/python -m tests.parts
	@$(BIN)/python -m pytest -n 2 --dist loadgroup $(PYTEST_ARGS)

coverage: $(VENV)/.dev ## All tests, and which lines they ran: a table, coverage-report/html/index.html and coverage.xml
	@$(BIN)/python -m tests.parts
	@$(BIN)/python -m pytest -n 2 --dist loadgroup --cov --cov-report=term --cov-report=html --cov-report=xml $(PYTEST_ARGS)

laws: $(VENV)/.dev ## All laws on 100 times their examples with new seeds, an hour at most; LAWS=, SEED= and TIMES= narrow it
	@$(BIN)/python -m tests.laws $(if $(SEED),--seed $(SEED)) $(if $(TIMES),--times $(TIMES)) $(if $(MINUTES),--minutes $(MINUTES)) $(if $(LAWS),'$(LAWS)')

soak: $(VENV)/.dev ## 20,000 seeds of the simulation of faults, two hours on two processors; SEEDS=A..B narrows it
	@$(BIN)/python -m tests.faults --seeds $(or $(SEEDS),0..20000)

mutation: $(VENV)/.mutation ## Break the code of a folder in many small ways, list what its tests do not notice: make mutation FOLDER=queues/quota
	@$(BIN)/python -m tests.mutation '$(FOLDER)' $(TESTS) $(if $(MUTANTS),--mutants '$(MUTANTS)')

lint: $(VENV)/.dev ## ruff, mypy --strict, import contracts
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

check: lint ## lint and the fast tests
	@$(BIN)/python -m pytest -q -n 2 -m "not slow and not real" $(PYTEST_ARGS)

controlplane: $(VENV)/.dev ## Build etcd, kube-apiserver and friends once into the cache (about 9 minutes)
	@$(BIN)/python -m tests.controlplane build

leaderworkerset: $(VENV)/.dev ## Build the real LeaderWorkerSet controller once into the cache, for an optional test
	@$(BIN)/python -m tests.controlplane leaderworkerset

owners: $(VENV)/.dev ## Build the real controllers of JobSet and other kinds once into the cache, for the tests of those kinds
	@$(BIN)/python -m tests.controlplane owners

moreowners: $(VENV)/.dev ## Build those of make owners and of MPIJob and SparkApplication, which BERTH_KINDS=all tests
	@$(BIN)/python -m tests.controlplane moreowners

helm: $(VENV)/.dev ## Build Helm once into the cache, for the tests of the chart
	@$(BIN)/python -m tests.controlplane helm

release: $(VENV)/.dev ## Write dist/: both wheels, the chart, and berth.yaml, which kubectl apply -f installs; needs kubectl and helm
	@mkdir -p dist
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist . ./checkpoint
	@kubectl kustomize deploy > dist/berth.yaml
	@helm package --destination dist deploy/chart

sbom: $(VENV)/.sbom ## Write dist/berth.cdx.json: what the image installs, with hashes, as a CycloneDX SBOM
	@mkdir -p dist
	@$(BIN)/cyclonedx-py requirements --pyproject pyproject.toml --mc-type application --output-reproducible --output-file dist/berth.cdx.json requirements.lock

openapi: $(VENV)/.openapi ## Ask /v1 all that its OpenAPI document allows, for half a minute, by schemathesis
	@$(BIN)/python -m tests.openapi $(if $(SEED),--seed $(SEED))

bench: $(VENV)/.dev ## Print the figures of bench/
	@$(BIN)/python -m bench

suites: $(VENV)/.dev ## Run Kueue's own integration suites against Berth on the real kube-apiserver; SUITE= and FOCUS= narrow it
	@$(BIN)/python -m tests.suites $(SUITE) $(if $(FOCUS),--focus '$(FOCUS)')

versus: $(VENV)/.dev ## Kueue and Berth in turns through Kueue's own performance runner, about an hour; SHAPE=, TURNS= and SCALE= change it
	@$(BIN)/python -m bench.versus $(if $(SHAPE),--shape $(SHAPE)) $(if $(TURNS),--turns $(TURNS)) $(if $(SCALE),--scale $(SCALE))

policies: $(VENV)/.dev ## Simulate every policy on a trace at several loads: make policies JOBS=jobs.csv
	@$(BIN)/python -m bench.policies --jobs $(JOBS) --out policies.json

lock: ## Pin the dependencies anew
	@$(BIN)/python -m pip install --quiet pip-tools
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --output-file requirements.lock build-requirements.in pyproject.toml
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --extra dev --extra mcp --constraint requirements.lock --output-file requirements-dev.lock pyproject.toml
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --extra mutation --constraint requirements-dev.lock --output-file requirements-mutation.lock pyproject.toml
	@cat requirements-mutation-3.13.lock >> requirements-mutation.lock
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --extra sbom --constraint requirements-dev.lock --output-file requirements-sbom.lock pyproject.toml
	@$(BIN)/pip-compile --quiet --strip-extras --generate-hashes --no-header --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --allow-unsafe --extra openapi --constraint requirements-dev.lock --output-file requirements-openapi.lock pyproject.toml

clean: ## Remove what the other targets made (the control plane's cache stays)
	@rm -rf $(VENV) .mutation coverage-report .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
