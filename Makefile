# Two commands do all the set-up: `make demo` for a first plan, `make test` for what needs neither PyTorch nor a browser.
PYTHON ?= python3
# What is imported is compiled once: without its bytecode a plan takes twice as long to start.
unexport PYTHONDONTWRITEBYTECODE
VENV := .venv
BIN := $(VENV)/bin
# Both cores of a small machine; a module's tests stay together, as they share what is costly to start.
# What fails is tried once more and named at the end: many tests wait for processes and pages of their own.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadscope --no-loadscope-reorder --reruns 1 -rfEsR

# Of these, mypy knows what they are only where PyTorch is: `make test-torch` reads all.
WITHOUT_PYTORCH := --exclude '^(planner/(dryrun|calibrate/measure)|tests/(execution|against_torch|dryrun|proof|golden))/|^tests/sweep/test_ray'

# What the newest Python has removed from its library, or deprecates, by typeshed; of that alone.
NEWEST_PYTHON := --config-file= --no-site-packages --ignore-missing-imports --python-version 3.15 \
  --enable-error-code deprecated --cache-dir .mypy_cache/newest

.PHONY: help demo test types test-smoke test-torch test-engines test-browser test-service test-pythons test-newest test-all mutants coverage serve bench bench-api bench-page attack-api soak-api fuzz-api fit-collectives accuracy-cross accuracy-kinds clean accuracy-anchored proof

help:
	@echo "make demo    install the planner and plan gpt2 on 4 GPUs"
	@echo "make test    lint, types, layers, and all tests without PyTorch, engines and a browser"
	@echo "make types   mypy of what needs no PyTorch"
	@echo "make test-torch   PyTorch's estimates beside ours; installs PyTorch and the engines"
	@echo "make test-engines   run every file that is written"
	@echo "make test-browser   pages in Chromium"
	@echo "make test-service   the image's steps, generated clients, generated requests"
	@echo "make test-pythons   demo and tests of what calls dependencies, on the other Pythons that are here"
	@echo "make test-all   all of these"
	@echo "make test-newest   the files with the newest release of every package that they import"
	@echo "make coverage   branch coverage of the tests that run in one process"
	@echo "make serve   web form and REST on http://127.0.0.1:8000"
	@echo "make bench   time the command line and the search"
	@echo "make bench-api   time the service beside a bare FastAPI"
	@echo "make bench-page   time until a person sees a page, in Chromium"
	@echo "make mutants   put 200 small faults into the estimates: which do their folders' tests find?"
	@echo "make attack-api   attack the service, each way for a minute, and time its probe meanwhile"
	@echo "make soak-api     use the service for 20 minutes: what it holds then, and what it answered"
	@echo "make fuzz-api     ask every route what schemathesis makes of its description, and 50,000 odd bodies"
	@echo "make accuracy-cross   fit constants anew without each source of published runs"
	@echo "make accuracy-kinds   set anew how far off each kind of job may be, and which runs a plan is like"
	@echo "make accuracy-anchored   predict published runs with one or three of their machine known"
	@echo "make proof   measure two cores, plan, train and compare: half an hour of an idle machine, as root"
	@echo "make fit-collectives   print the constants of data/calibration/interconnect.toml"

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip uninstall --quiet --yes setuptools

# Stamps say what is installed; a change to pyproject.toml installs again.
$(VENV)/base.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --editable .
	@touch $@

$(VENV)/serve.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[serve]'
	@touch $@

$(VENV)/test.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@

$(VENV)/torch.stamp: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test-torch]'
	DS_BUILD_OPS=0 $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-build-isolation deepspeed==0.19.8
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps torchtitan==0.3.0 trl==1.16.0 axolotl==0.19.0 llamafactory==0.9.5
	@touch $@ $(VENV)/test.stamp

demo: $(VENV)/base.stamp
	$(BIN)/planner suggest gpt2 --gpus 4

# What a test cannot find, it is skipped for in a line that says how to get it; in CI it fails.
test: $(VENV)/test.stamp
	tests/install-programs redis-server jq curl
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(MAKE) --no-print-directory types
	$(BIN)/lint-imports
	$(PYTEST) --lane base

# Each commit, too: see .pre-commit-config.yaml.
types:
	$(BIN)/mypy $(WITHOUT_PYTORCH) planner api web tests

# One layout of every target: what is wrong with all of them is known here.
SMOKE := test_parity.py::test_torchrun_trains_like_one_process \
  test_trainer_shards.py::test_deepspeed_behind_trainer_trains_like_one_process \
  test_trainer.py::test_ddp_trains_like_one_process_and_resumes_exactly \
  test_megatron.py::test_megatron_core_accepts_every_layout_as_it_is_meant \
  test_torchtitan.py::test_torchtitan_reads_every_layout_as_it_is_meant

test-smoke: $(VENV)/torch.stamp
	$(PYTEST) $(addprefix tests/execution/,$(SMOKE))

# In an environment of its own, of some 8 GB: the newest release of each package that the files import, whatever pyproject.toml pins.
NEWEST := $(VENV)/newest
NEWEST_PACKAGES = $(shell $(PYTHON) -c 'import re, tomllib; extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; print(*(re.match(r"[\w\[\]-]+", each)[0] for each in extras["test-torch"] if "trainplan" not in each))')
NEWEST_TESTS := test_parity.py test_deepspeed.py test_trainer.py test_lora.py test_finetuners_read.py

test-newest: $(VENV)/base.stamp
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/python -m pip install --quiet --upgrade setuptools wheel torch
	$(NEWEST)/bin/python -m pip install --quiet --upgrade $(NEWEST_PACKAGES) --editable '.[test]'
	DS_BUILD_OPS=0 $(NEWEST)/bin/python -m pip install --quiet --upgrade --no-build-isolation deepspeed
	$(NEWEST)/bin/python -m pip install --quiet --upgrade --no-deps axolotl llamafactory
	$(NEWEST)/bin/python -m pip list --format=freeze
	$(NEWEST)/bin/python -m pytest $(addprefix tests/execution/,$(NEWEST_TESTS))

test-torch: test-smoke
	$(BIN)/mypy
	$(PYTEST) --lane torch

test-engines: $(VENV)/torch.stamp
	tests/install-programs slurmctld:slurm-wlm munged:munge ip:iproute2
	$(PYTEST) --lane engines

test-browser: $(VENV)/test.stamp
	tests/install-programs chromium
	$(PYTEST) --lane browser

test-service: $(VENV)/test.stamp
	tests/install-programs redis-server nginx:nginx-light
	$(PYTEST) --lane service

test-pythons: $(VENV)/test.stamp
	$(BIN)/mypy $(NEWEST_PYTHON) planner api web
	tests/pythons

test-all: test test-torch test-browser test-service test-pythons test-engines

# Left out is what says nothing here: programs in other processes, and laws over many examples.
coverage: $(VENV)/test.stamp
	$(PYTEST) --cov --cov-report=term-missing --ignore tests/execution --ignore tests/browser \
	  --ignore tests/test_laws.py --ignore tests/test_dockerfile.py \
	  --ignore tests/accuracy/test_step_time_fits.py --ignore tests/hardware/test_topology_damage.py

serve: $(VENV)/serve.stamp
	$(BIN)/planner serve

bench: $(VENV)/test.stamp
	$(BIN)/python tests/bench.py

bench-api: $(VENV)/test.stamp
	$(BIN)/python tests/bench_api.py

bench-page: $(VENV)/test.stamp
	tests/install-programs chromium
	$(BIN)/python tests/bench_page.py

# By hand or at night, some ten minutes of an idle core: MUTANTS="--seed 2" for others.
mutants: $(VENV)/test.stamp
	nice $(BIN)/python tests/mutants.py $(MUTANTS)

attack-api: $(VENV)/test.stamp
	$(BIN)/python tests/attack_service.py --seconds 60

soak-api: $(VENV)/test.stamp
	tests/install-programs redis-server
	$(BIN)/python tests/soak_service.py

fuzz-api: $(VENV)/test.stamp
	FUZZ_CASES=420 FUZZ_BODIES=12500 $(BIN)/python -m pytest -n logical tests/api/test_fuzzed.py tests/api/test_mutated.py

fit-collectives: $(VENV)/test.stamp
	$(BIN)/python tests/fits/collectives.py

accuracy-cross: $(VENV)/test.stamp
	PYTHONPATH=tests $(BIN)/python tests/fits/step_time.py

accuracy-kinds: $(VENV)/test.stamp
	PYTHONPATH=tests $(BIN)/python tests/fits/kinds.py

accuracy-anchored: $(VENV)/test.stamp
	PYTHONPATH=tests $(BIN)/python tests/fits/anchored.py
	$(BIN)/python -m pytest --update-golden tests/accuracy/test_anchored.py

proof: $(VENV)/test.stamp
	PYTHONPATH=.:tests $(BIN)/python -m proof --write
	$(BIN)/python -m pytest --update-golden tests/accuracy/test_cpu_proof.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage
