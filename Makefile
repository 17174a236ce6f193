# Two commands are all a newcomer needs: `make demo` and `make test`. Both do their own set-up.
PYTHON ?= $(shell command -v python3.11 || command -v python3.12 || command -v python3.13 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PIP := $(BIN)/python -m pip install --disable-pip-version-check

# Tests start hundreds of processes: without bytecode each of them would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test test-all test-busy soak soak-kafka bench faults lint model lock clean

help:  ## list the commands
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-10s %s\n", $$1, $$2}'

setup: $(STAMP)  ## make .venv with everything pinned in requirements/

$(STAMP): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Streamwork needs Python 3.11 or newer; $(PYTHON) is older. Set PYTHON=/path/to/python3.11"; exit 2; }
	@echo "set-up, 1 of 4: make the virtual environment $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV)
	@echo "set-up, 2 of 4: install the build tools (requirements/build.txt)"
	@$(PIP) --quiet --require-hashes -r requirements/build.txt
	@echo "set-up, 3 of 4: download and install Spark and all other packages (requirements/dev.txt): several hundred MB, some minutes"
	@$(PIP) --progress-bar on --require-hashes --no-build-isolation -r requirements/dev.txt
	@echo "set-up, 4 of 4: install Streamwork itself"
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

demo: $(STAMP)  ## two jobs on Spark that are killed and recover (about two minutes)
	$(BIN)/streamwork demo

lint: $(STAMP)  ## ruff, mypy, import-linter
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

ARCHIVE := $(VENV)/.spark-archived
$(ARCHIVE): $(STAMP)
	-$(BIN)/streamwork doctor --prepare
	@touch $@

OTHER := $(VENV)/other-pyspark
$(OTHER)/.installed: requirements/other-pyspark.txt $(STAMP)
	@echo "another version of Spark, for the drill of an engine upgrade (requirements/other-pyspark.txt): several hundred MB"
	@rm -rf $(OTHER)
	@$(PIP) --quiet --require-hashes --no-deps --no-build-isolation --target $(OTHER) -r $<
	@touch $@

PYTEST := $(BIN)/python -m pytest --numprocesses 2 --dist worksteal
test: lint  ## lint, then the quick tests: every promise is touched (about 6 minutes)
	$(PYTEST) --tier quick

test-all: $(ARCHIVE) $(OTHER)/.installed  ## the other tests: all cells of the fault matrix, kills on Spark, a cluster (about 16 minutes)
	STREAMWORK_OTHER_PYSPARK=$(abspath $(OTHER)) $(PYTEST) --tier rest

RUNS ?= 3
test-busy: $(STAMP)  ## the quick tests three times beside a busy loop on each core: none may depend on the time it is given
	$(BIN)/python tests/busy.py $(RUNS) $(PYTEST) --tier quick

SECONDS ?= 1200
KILLS ?= 300
soak: $(STAMP)  ## random kills of drivers, workers and servers: make soak SECONDS=1200 KILLS=300 (about an hour)
	STREAMWORK_SOAK_SECONDS=$(SECONDS) $(BIN)/python -m pytest -s tests/soak
	STREAMWORK_WALKS=20000 $(BIN)/python -m pytest tests/epoch/test_walks.py
	STREAMWORK_SOAK=1 $(BIN)/python -m pytest tests/hosts/test_matrix_on_spark.py
	STREAMWORK_KILLS=$(KILLS) $(BIN)/python -m pytest -s tests/hosts/test_kills.py

KAFKA_KILLS ?= 100
soak-kafka: $(STAMP)  ## of these the ones with Kafka on both sides, broker included: make soak-kafka KAFKA_KILLS=100 (about 20 minutes)
	STREAMWORK_KAFKA_KILLS=$(KAFKA_KILLS) $(BIN)/python -m pytest -n 0 -s tests/soak/test_kafka_soak.py

bench: $(STAMP)  ## measure everything anew, and write docs/benchmarks from it (about three hours, on a quiet machine)
	for name in log engine keyed-state windows joins state-size recovery "recovery --standby" live savepoint manual interval "interval --mode live" lambda backpressure console; do \
	    $(BIN)/streamwork bench $$name --save docs/benchmarks/results || exit 1; \
	done
	$(BIN)/python tests/real_servers.py $(BIN)/streamwork bench semantics --postgres {postgres} --save docs/benchmarks/results
	$(BIN)/python tests/real_servers.py $(BIN)/streamwork bench kafka --kafka {kafka} --save docs/benchmarks/results
	$(BIN)/python tests/real_servers.py $(BIN)/streamwork bench query --redis {redis} --save docs/benchmarks/results
	for name in baseline state generator inside log million rates batches; do \
	    $(BIN)/python tests/real_servers.py $(BIN)/streamwork bench ysb --variant $$name --kafka {kafka} --redis {redis} \
	        --save docs/benchmarks/results || exit 1; \
	done
	$(BIN)/streamwork bench page

faults: $(STAMP)  ## write docs/faults.md anew, from the cells of the fault matrix
	PYTHONPATH=tests $(BIN)/python -m matrix.table > docs/faults.md

model: $(STAMP)  ## every interleaving of the epoch protocol in a small world (about 7 minutes)
	$(BIN)/python tests/model/epoch_protocol.py

lock:  ## pin the dependencies anew, with hashes (needs uv on the PATH)
	uv pip compile --quiet --python-version 3.11 --generate-hashes --no-annotate --no-header requirements/build.in -o requirements/build.txt
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --all-extras --group dev pyproject.toml -c requirements/pins.txt -o requirements/dev.txt

clean:  ## remove everything that the other commands made
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .streamwork
