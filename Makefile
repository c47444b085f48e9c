# Two commands do all the set-up: `make demo` for a first plan, `make test` for everything.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: help demo test serve bench fit-collectives clean

help:
	@echo "make demo    install the planner and plan gpt2 on 4 GPUs"
	@echo "make test    install everything, then lint, types, layers and tests"
	@echo "make serve   web form and REST on http://127.0.0.1:8000"
	@echo "make bench   time the command line and the search"
	@echo "make fit-collectives   print the constants of data/calibration/interconnect.toml"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip uninstall --quiet --yes setuptools

# Stamps say what is installed; a change to pyproject.toml installs again.
$(VENV)/base.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

$(VENV)/serve.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[hub,serve]'
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation deepspeed==0.19.8
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps torchtitan==0.3.0
	@touch $@

demo: $(VENV)/base.stamp
	$(BIN)/planner suggest gpt2 --gpus 4

test: $(VENV)/test.stamp
	tests/install-browser
	tests/install-engines
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest --cov --cov-report=term-missing

serve: $(VENV)/serve.stamp
	$(BIN)/uvicorn api.main:app --host 127.0.0.1 --port 8000

bench: $(VENV)/test.stamp
	$(BIN)/python tests/bench.py

fit-collectives: $(VENV)/test.stamp
	$(BIN)/python tests/fits/collectives.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
