PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check -q

# A relative data folder is relative to this file, wherever a command runs.
ifdef BAYESNORM_DATA
ifeq ($(filter /%,$(firstword $(BAYESNORM_DATA))),)
override BAYESNORM_DATA := $(abspath $(BAYESNORM_DATA))
endif
export BAYESNORM_DATA
endif

.DEFAULT_GOAL := help
.PHONY: help install quickstart docs dist lint format typecheck test-core test reproduce bench-inference bench-peers bench-shift bench-architectures bench-tabular test-integrations bench-classes clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' Makefile

install: .venv/.installed ## Create .venv with the package and everything that its tests need

# Compiling on all cores, without the tests of packages, takes half the time that pip needs for it.
COMPILE := $(BIN)/python -m compileall -q -j 0 -x '/tests?/' .venv/lib >/dev/null || true

.venv/.tables: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(PIP) install --no-compile -c constraints.txt -e ".[tabular,cli,plots,report]"
	@$(COMPILE)
	@touch $@

.venv/.installed: .venv/.tables
	$(PIP) install --no-compile -c constraints.txt -e ".[dev]"
	@$(COMPILE)
	@touch $@

quickstart: .venv/.tables ## From a table to a report in about a minute: 569 tumours, benign or malignant?
	@mkdir -p out
	$(BIN)/bayesnorm data csv sklearn:breast_cancer --out out/breast_cancer.csv --force
	$(BIN)/bayesnorm fit out/breast_cancer.csv --target target --out out/breast_cancer --fast --force

.venv-docs/.installed: pyproject.toml constraints.txt docs/site/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip --disable-pip-version-check -q install -c constraints.txt \
		-r docs/site/requirements.txt -e ".[tabular,cli,plots,report]"
	@touch $@

docs: .venv-docs/.installed browser ## Run the tutorials and build the documentation site in out/site (needs no network to be read)
	OMP_NUM_THREADS=1 .venv-docs/bin/python -m docs.site.build $(ARGS)

lint: .venv/.installed ## Check style and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: .venv/.installed ## Fix what the style check can fix, then format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

typecheck: .venv/.installed ## Check the types of the package and of experiments/
	$(BIN)/mypy

# Another type checker than that of `make typecheck`, for the programs that tests/test_types.py writes.
.PHONY: pyright
pyright: .venv/.installed ## Check the types of README's Python with pyright (needs npm)
	rm -rf out/pages
	$(BIN)/python -m tests.test_types out
	npx --yes pyright@1.1 --pythonpath $(BIN)/python out/pages/README.py out/pages/claims.py

# The report and the live page are tested in a real browser, and the page's numbers in node, if they can be installed.
.PHONY: browser
browser:
	@for program in chromium node; do \
	  command -v $$program >/dev/null \
	  || (apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
	      apt-get install -y -qq --no-install-recommends $$(echo $$program | sed 's/^node$$/nodejs/')) >/dev/null 2>&1 \
	  || echo "$$program could not be installed: some tests of pages are skipped"; \
	done

# Neighbouring tests share fitted posteriors, so each worker starts with a third of the tests in order (worksteal).
# Three workers on two cores, because some tests wait.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 3 --dist worksteal

test-core: .venv/.installed ## Only the tests of the core, in 90 seconds
	$(PYTEST) $(addprefix tests/,contract network predictive likelihoods engines posteriors training methods metrics)

test: lint typecheck browser ## Style, format, types and all tests
	$(PYTEST)

reproduce: .venv/.installed ## Make a table or figure: make reproduce NAME=teye-table4 [ARGS=...]; without NAME, list them
	$(BIN)/python -m experiments $(or $(NAME),--help) $(ARGS)

bench-inference: .venv/.installed ## Time and accuracy of every way of predicting (needs BAYESNORM_DATA)
	$(BIN)/python -m benchmarks.inference $(ARGS)
	$(BIN)/python -m benchmarks.readme_tables

# The peers need other versions of some packages, and nothing else needs the peers.
.venv-peers/.installed: pyproject.toml benchmarks/peers_requirements.txt
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/pip --disable-pip-version-check -q install -r benchmarks/peers_requirements.txt
	.venv-peers/bin/pip --disable-pip-version-check -q install -c constraints.txt -e ".[maps,cli]"
	@touch $@

bench-peers: .venv-peers/.installed ## Compare with torch-uncertainty and laplace-torch: cost, scores, supported networks
	.venv-peers/bin/python -m benchmarks.peers $(ARGS)

.venv-integrations/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-integrations
	.venv-integrations/bin/pip --disable-pip-version-check -q install -c constraints.txt \
		-e ".[tabular,cli,serve,onnx,mlflow,lightning]" "tritonclient[http]" pytest hypothesis
	@touch $@

# The packages warn about themselves, so warnings are no errors here.
test-integrations: .venv-integrations/.installed ## Test MLflow, Lightning and tritonclient in an environment of their own
	OMP_NUM_THREADS=1 .venv-integrations/bin/python -m pytest -W default tests/integrations $(ARGS)

.venv-shift/.installed: pyproject.toml benchmarks/shift_requirements.txt
	$(PYTHON) -m venv .venv-shift
	.venv-shift/bin/pip --disable-pip-version-check -q install -r benchmarks/shift_requirements.txt
	.venv-shift/bin/pip --disable-pip-version-check -q install -c constraints.txt -e ".[maps,cli]"
	@touch $@

bench-shift: .venv-shift/.installed ## Compare drift tests with alibi-detect on the images of `shift alarms` (needs BAYESNORM_DATA)
	.venv-shift/bin/python -m benchmarks.shift_peers $(ARGS)

# torchvision without its dependencies: timm asks for it, and pip would replace torch by another build.
.venv-architectures/.installed: pyproject.toml benchmarks/architectures_requirements.txt
	$(PYTHON) -m venv .venv-architectures
	.venv-architectures/bin/pip --disable-pip-version-check -q install -c constraints.txt -e .
	.venv-architectures/bin/pip --disable-pip-version-check -q install --no-deps torchvision==0.28.0
	.venv-architectures/bin/pip --disable-pip-version-check -q install -c constraints.txt \
		-r benchmarks/architectures_requirements.txt
	@touch $@

bench-architectures: .venv-architectures/.installed ## Try architectures of timm and torchvision (30 minutes of CPU)
	OMP_NUM_THREADS=1 .venv-architectures/bin/python -m benchmarks.architectures $(ARGS)
	$(BIN)/python -m benchmarks.readme_tables

# NGBoost needs an older pandas, so this comparison has its own environment.
.venv-tabular/.installed: pyproject.toml benchmarks/tabular_requirements.txt
	$(PYTHON) -m venv .venv-tabular
	.venv-tabular/bin/pip --disable-pip-version-check -q install -c constraints.txt torch
	.venv-tabular/bin/pip --disable-pip-version-check -q install -c constraints.txt \
		-r benchmarks/tabular_requirements.txt -e ".[tabular]"
	@touch $@

bench-tabular: .venv-tabular/.installed ## Compare tables with boosted trees, forests, networks and a Gaussian process (needs BAYESNORM_DATA)
	.venv-tabular/bin/python -m benchmarks.tabular $(ARGS)
	$(BIN)/python -m benchmarks.readme_tables

bench-classes: .venv-tabular/.installed ## Compare classification tables with boosted trees and logistic regression
	.venv-tabular/bin/python -m benchmarks.tabular_classes $(ARGS)
	$(BIN)/python -m benchmarks.readme_tables

.venv-dist/.installed: pyproject.toml
	$(PYTHON) -m venv .venv-dist
	.venv-dist/bin/pip --disable-pip-version-check -q install "build>=1.2,<2"
	@touch $@

dist: .venv-dist/.installed ## Build the wheel and the source distribution, and try them in a new environment
	rm -rf dist
	.venv-dist/bin/python -m build
	OMP_NUM_THREADS=1 .venv-dist/bin/python release/check.py

# One environment for each torch; pip takes the build that the package index offers, which may need several GB.
TORCH_VERSIONS := 2.6.0 2.15.0
.PHONY: test-torch
test-torch: $(addprefix test-torch-,$(TORCH_VERSIONS)) ## The tests of the core with the oldest and the newest torch

test-torch-%: pyproject.toml
	$(PYTHON) -m venv .venv-torch-$*
	.venv-torch-$*/bin/pip --disable-pip-version-check -q install "torch==$*" -e ".[tabular,cli,plots,report]" \
		pytest pytest-xdist hypothesis scoringrules==0.10.*
	OMP_NUM_THREADS=1 .venv-torch-$*/bin/pytest -n 2 --dist worksteal \
		$(addprefix tests/,contract network predictive likelihoods engines posteriors training methods metrics) $(ARGS)

clean: ## Remove caches and builds (.venv and out/ stay)
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .coverage htmlcov
	find . -path "./.venv*" -prune -o -type d \( -name __pycache__ -o -name '*.egg-info' \) -print0 | xargs -0 rm -rf
