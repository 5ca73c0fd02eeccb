# make run PROMPT="cyberpunk rainy street"    the main job, from nothing
# make test                                   the tests, from nothing
# make check, make format                     lint and types; format
# More knobs: make run PROMPT="..." ARGS="policy=strict seed=7"

PYTHON ?= python3
VENV ?= .venv
PROMPT ?= cyberpunk rainy street
ARGS ?=

BIN := $(VENV)/bin
STAMPS := $(VENV)/.stamps

# The prompt reaches the program through the environment, letter by letter: neither make nor the shell
# gets to read it as code. (A variable of make's command line would be exported expanded; this is not.)
unexport PROMPT
export MMSPEC_PROMPT := $(value PROMPT)

.DEFAULT_GOAL := help
.PHONY: help run test check format fetch clean

help:
	@sed -n '1,4s/^# //p' Makefile

$(STAMPS)/venv:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "mmspec needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/installed: pyproject.toml $(STAMPS)/venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .
	@touch $@

$(STAMPS)/installed-dev: pyproject.toml $(STAMPS)/venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e ".[dev]"
	@touch $(STAMPS)/installed $@

# The models' outside parts, into the user's cache; nothing happens when they are there.
fetch: $(STAMPS)/installed
	$(BIN)/python -m mmspec.weights

run: fetch
	$(BIN)/python -m mmspec.run "prompt=$$MMSPEC_PROMPT" $(ARGS)

test: $(STAMPS)/installed-dev fetch
	$(BIN)/python -m pytest

check: $(STAMPS)/installed-dev
	$(BIN)/ruff format --check mmspec pipelines tests
	$(BIN)/ruff check mmspec pipelines tests
	$(BIN)/mypy

format: $(STAMPS)/installed-dev
	$(BIN)/ruff format mmspec pipelines tests
	$(BIN)/ruff check --fix mmspec pipelines tests

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache
