# What a person runs is what the checks run. "make" alone lists the targets.
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
SCENARIO ?= mixed-fleet
PORT ?= 9838
PYTEST_ARGS ?=
# Whole files side by side, one on each processor, in the order of tests/conftest.py.
PYTEST := $(BIN)/python -m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help setup demo test tools lint format typecheck layers generated check lock manifests stubs pictures bench clean

help: ## List the targets.
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 12

setup: $(READY) ## Make the virtual environment from the locked, hashed requirements.

$(READY): requirements/dev.txt pyproject.toml scripts/make-venv
	@scripts/make-venv $(VENV)
	@touch $@

demo: $(READY) ## Serve a simulated node; prints what to open. SCENARIO= and PORT= choose.
	@$(BIN)/gpuwatch demo --scenario $(SCENARIO) --port $(PORT)

$(VENV)/.tensorflow: requirements/tensorflow.txt $(READY)
	@echo "Fetching TensorFlow into $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/tensorflow.txt
	@touch $@

tools: $(READY) $(VENV)/.tensorflow
	@scripts/install-missing promtool=prometheus amtool=prometheus-alertmanager chromium=chromium openssl=openssl
	@scripts/install-helm $(VENV)

test: $(READY) tools ## Run all tests.
	@$(PYTEST) $(PYTEST_ARGS)

lint: $(READY)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .

format: $(READY) ## Format the sources and apply safe corrections.
	@$(BIN)/ruff format --quiet .
	@$(BIN)/ruff check --fix .

typecheck: $(READY)
	@$(BIN)/mypy

layers: $(READY)
	@$(BIN)/lint-imports --no-logo

generated: $(READY)
	@$(BIN)/gpuwatch generate --check

check: lint typecheck layers generated test ## Everything that must hold before a change is merged.

lock: ## Choose and pin versions anew (needs uv).
	@scripts/lock

manifests: $(READY) tools ## Render deploy/manifests from the chart anew.
	@scripts/render-manifests $(VENV)/tools/helm4

stubs: $(READY) ## Make the modules of gpuwatch/kube/*.proto anew.
	@$(BIN)/python -m grpc_tools.protoc --proto_path=. --python_out=. --pyi_out=. gpuwatch/kube/*.proto

pictures: $(READY) tools ## Draw the pictures of the documents anew.
	@$(BIN)/python docs/tools/draw_boards.py
	@$(BIN)/python docs/tools/draw_page.py

bench: $(READY) $(VENV)/.tensorflow ## Measure; nothing here passes or fails.
	@$(BIN)/python bench/read_pass.py
	@$(BIN)/python bench/read_pass.py training
	@$(BIN)/python bench/scrape.py
	@$(BIN)/python bench/page.py
	@$(BIN)/python bench/pods.py
	@$(BIN)/python bench/attribution.py
	@$(BIN)/python bench/daemon.py training
	@$(BIN)/python bench/fault_to_metric.py
	@$(BIN)/python bench/tensorflow_step.py

clean: ## Remove what the targets made.
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
