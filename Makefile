# `make run` and `make test` are all that one needs; both do their own set-up.
SHELL := bash
PYTHON ?= python3
PY := .venv/bin/python
export OMP_NUM_THREADS ?= 2

.PHONY: help setup system test-system run test test-triton check exam gpu clean

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | sort

setup: .venv/.ready ## prepare .venv with the pinned packages

.venv/.ready: pyproject.toml constraints.txt
	@scripts/setup $(PYTHON)

system: ## bubblewrap, by the system's package manager where it may
	@scripts/system bwrap

test-system: ## what the tests need of the system: bubblewrap and Chromium
	@scripts/system bwrap chromium

run: setup system ## start the web pages and the runner; prints the link to open
	@exec $(PY) manage.py up

test: setup test-system ## every test that needs no GPU
	@$(PY) -m pytest -n 2 --dist loadgroup -m "not gpu and not exam" $(ARGS)

test-triton: setup ## the tests of the interpreter, the compiler and the protocol with an older Triton
	@scripts/older-triton 3.6.0
	@.venv/triton-3.6.0/bin/python -m pytest -n 2 --dist loadfile tests/evaluation/test_interpreter.py \
		tests/evaluation/test_interpreter_libdevice.py tests/evaluation/test_memory_safety.py \
		tests/evaluation/test_compiling.py tests/evaluation/test_protocol.py $(ARGS)

check: setup ## ruff, mypy, import-linter
	@$(PY) -m ruff check . && $(PY) -m ruff format --check . && $(PY) -m mypy && .venv/bin/lint-imports

exam: setup test-system ## the suites too long for `make test`
	@$(PY) -m pytest -m "exam and not gpu" $(ARGS)

gpu: ## the tests that need a GPU; without Django, on the system's torch and triton if .venv is absent
	@PYTHONPATH=. $$(test -x $(PY) && echo $(PY) || echo $(PYTHON)) -m pytest -p no:django -c tests/gpu/pytest.ini tests/gpu $(ARGS)

clean: ## remove .venv and the local database
	rm -rf .venv var
