# Convoy: `make serve` runs it, `make test` tests it, `make check` reads it. Nothing else needs to be set up.

PYTHON ?= python3
HOST = 127.0.0.1
PORT = 8000
VENV := .venv
BIN := $(VENV)/bin
CLIENTS := .venv-clients
PIP := $(BIN)/pip --disable-pip-version-check install -q -c constraints.txt

.PHONY: help serve test check format loadtest loadtest-ui bench-edge bench-batching bench-vectorizer bench-lanes bench-scheduling bench-stream bench-bill bench-loop bench-peers bench-gpu test-clients clean

help: ## list what there is
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 24

serve: $(VENV)/.runtime ## serve the bundled model; HOST= and PORT= override, ARGS= adds flags
	$(BIN)/python -m app serve --host $(HOST) --port $(PORT) $(ARGS)

test: $(VENV)/.dev ## all tests, with the real model in a real server process
	$(BIN)/python -m pytest $(ARGS)

test-clients: $(VENV)/.dev $(CLIENTS)/.installed ## the client libraries of docs/clients.md, as published, against a real server (needs npm)
	$(BIN)/python -m pytest tests/clients $(ARGS)

check: $(VENV)/.dev ## format, lint, types, layers
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q tests/test_layers.py

format: $(VENV)/.dev ## put the code into shape
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

loadtest: $(VENV)/.loadtest ## batching off against on, under load: a report in report/; ARGS=--quick for a first look
	$(BIN)/python -m loadtest.run $(ARGS)

loadtest-ui: $(VENV)/.loadtest ## locust's web UI against a running service
	$(BIN)/locust -f loadtest/locustfile.py --web-host 127.0.0.1 --host http://$(HOST):$(PORT) $(ARGS)

bench-edge: $(VENV)/.dev ## what the HTTP edge costs (needs wrk)
	$(BIN)/python -m benchmarks.edge $(ARGS)

bench-batching: $(VENV)/.dev ## batching against no batching (needs wrk)
	$(BIN)/python -m benchmarks.batching $(ARGS)

bench-vectorizer: $(VENV)/.dev ## packed against padded forwards and sentence-transformers
	$(BIN)/python -m benchmarks.vectorizer $(ARGS)

bench-lanes: $(VENV)/.dev ## queries beside bulk lists, on the bundled model
	$(BIN)/python -m benchmarks.lanes $(ARGS)

bench-scheduling: $(VENV)/.dev ## the plots of docs/batching.md
	$(PIP) -e '.[plots]'
	$(BIN)/python -m benchmarks.scheduling $(ARGS)

bench-stream: $(VENV)/.dev ## a corpus through /embed/stream: rate, memory, and what queries feel
	$(BIN)/python -m benchmarks.stream $(ARGS)

bench-bill: $(VENV)/.dev ## whether the bill agrees with what clients measure
	$(BIN)/python -m benchmarks.bill $(ARGS)

bench-loop: $(VENV)/.dev ## the founding experiment: a loop against a batch, as in docs/performance.md
	$(PIP) -e '.[plots]'
	$(BIN)/python -m benchmarks.loop_vs_batch --plot docs/loop-vs-batch $(ARGS)

bench-peers: $(VENV)/.dev ## other servers beside Convoy, each in an environment of its own, into docs/comparison.md (15 minutes)
	$(BIN)/python -m benchmarks.peers $(ARGS)

bench-gpu: $(VENV)/.dev ## check a GPU: vectors, speed, and what arrives through HTTP
	$(BIN)/python -m benchmarks.gpu $(ARGS)

clean: ## forget the virtual environment and all caches
	rm -rf $(VENV) $(CLIENTS) .venv-peers tests/clients/node/node_modules .schemathesis .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Convoy needs Python 3.11 or newer; $$($(PYTHON) --version) is not. Name another: make PYTHON=python3.12 …"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what Convoy needs into $(VENV); this takes a few minutes once."
	$(PIP) -e '.[client]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what Convoy and its tests need into $(VENV); this takes a few minutes once."
	$(PIP) -e '.[client,dev,otel,loadtest]'
	@touch $@ $(VENV)/.runtime

$(CLIENTS)/.installed: tests/clients/requirements.txt tests/clients/constraints.txt tests/clients/node/package-lock.json
	@echo "Installing a dozen client libraries into $(CLIENTS); this takes a few minutes once."
	$(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/pip --disable-pip-version-check install -q -r tests/clients/requirements.txt -c tests/clients/constraints.txt
	npm ci --prefix tests/clients/node --no-fund --no-audit
	@touch $@

$(VENV)/.loadtest: pyproject.toml constraints.txt | $(BIN)/python
	@echo "Installing what Convoy and its load test need into $(VENV); this takes a few minutes once."
	$(PIP) -e '.[loadtest]'
	@touch $@
