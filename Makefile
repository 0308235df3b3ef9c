# gpuyard's commands. `make` alone lists them.
SHELL := /bin/bash
PYTHON ?= python3
BIN := .venv/bin
MEMBERS := $(wildcard libs/* services/*) deploy/local
export PIP_DISABLE_PIP_VERSION_CHECK = 1

# Runs a command and shows what it printed only where it failed.
quietly = out=$$($(1) 2>&1) || { echo "$$out"; exit 1; }

.DEFAULT_GOAL := help
.PHONY: help setup demo up down logs test check check-types check-unit format bench docs lock clean

help: ## list the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

.venv/.ready: requirements.lock $(MEMBERS:%=%/pyproject.toml)
	@$(PYTHON) -c 'import sys; sys.exit("gpuyard needs Python 3.11 or newer; set PYTHON=python3.x" if sys.version_info < (3, 11) else 0)'
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing the pinned packages into .venv (the first time this takes a minute or two)"
	@$(BIN)/python -m pip install --quiet --require-hashes --only-binary :all: -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation $(MEMBERS:%=-e %)
	@touch .venv/.ready

setup: .venv/.ready ## install everything into .venv (all commands below do it by themselves)

demo: .venv/.ready ## run the main job on a real bus, a real database and six real services; check it
	@$(BIN)/gpuyard-local demo

up: .venv/.ready ## start gpuyard on this machine, with two simulated nodes
	@$(BIN)/gpuyard-local up

down: .venv/.ready ## stop it; its state stays in .gpuyard
	@$(BIN)/gpuyard-local down

logs: .venv/.ready ## show the services' logs
	@$(BIN)/gpuyard-local logs

test: .venv/.ready ## run every test (about eight minutes on two cores)
	@$(BIN)/pytest -q $(TESTS)

check: .venv/.ready ## format, lint, types, imports, unit tests
	@$(BIN)/ruff format --check --quiet . || { echo "run 'make format'"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(MAKE) --silent --jobs=2 check-types check-unit

check-types:
	@$(call quietly,$(BIN)/lint-imports --no-cache)
	@$(call quietly,$(BIN)/basedpyright --level error)

check-unit:
	@$(BIN)/pytest -q -n 2 tests/unit tests/contracts tests/tidy

format: .venv/.ready ## format the code
	@$(BIN)/ruff format --quiet . && $(BIN)/ruff check --fix --quiet .

bench: .venv/.ready ## measure; prints a table and writes bench.json
	@$(BIN)/python -m bench

docs: .venv/.ready ## generate docs/events.md, docs/asyncapi.json, docs/openapi.json and the golden schemas
	@$(BIN)/python -m gpuyard_contracts docs libs/contracts/schemas
	@$(BIN)/python -m gpuyard_api.openapi docs/openapi.json

lock: .venv/.ready ## pin the newest versions that fit
	@$(BIN)/uv lock --quiet --upgrade
	@$(BIN)/uv export --quiet --all-groups --no-emit-workspace --no-header --format requirements-txt -o requirements.lock

clean: ## remove what the commands made (asks the local stack to stop first)
	@if test -x $(BIN)/gpuyard-local; then $(BIN)/gpuyard-local down --purge || true; fi
	@rm -rf .venv bench.json .pytest_cache .ruff_cache .hypothesis
