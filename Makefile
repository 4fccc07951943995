# Everything runs in a virtual environment that is made here, in .venv, when it is first needed.

# Any Python from 3.11 on; `make PYTHON=…` chooses another one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet

.PHONY: demo test torture lint bench docs clean help

help: ## what there is to make
	@grep -E '^[a-z]+:.*##' Makefile | sed 's/:.*## /\t/' | sort

demo: $(VENV)/.core ## watch an agent get killed, resume, fork and rewind
	@$(BIN)/clew demo

test: $(VENV)/.test $(VENV)/.pgbouncer ## run all tests
	@echo "== running the tests"
	@$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist loadfile $(ARGS)

torture: $(VENV)/.torture $(VENV)/.etcd ## break the stores on purpose, in every way; about half an hour
	@$(BIN)/python tests/faults/torture.py $(ARGS)

lint: $(VENV)/.lint ## style, strict types, tidiness
	@$(BIN)/ruff check src tests bench docs
	@$(BIN)/ruff format --check src tests bench docs
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file= --strict tests/typing/user_program.py tests/typing/async_user_program.py
	@$(BIN)/pyright
	@$(BIN)/python -m pytest tests/test_tidy.py
	@$(BIN)/python bench/house.py

bench: $(VENV)/.bench ## measure, beside the peers; ONLY=append,fork measures a part
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

docs: $(VENV)/.test ## write docs/reference anew from the docstrings
	@$(BIN)/python docs/generate.py

clean: ## remove everything that was made
	rm -rf $(VENV) bench/results build dist

$(VENV)/.python:
	@test -n "$(PYTHON)" || { echo "Clew needs Python 3.11 or newer; none was found. Try: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "== making a virtual environment in $(VENV) ($$($(PYTHON) --version))"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.core: $(VENV)/.python pyproject.toml
	@echo "== installing Clew into it"
	@$(PIP) -e .
	@touch $@

# Servers that some tests need and that PyPI does not have; without them those tests are skipped.
$(VENV)/.pgbouncer: $(VENV)/.python
	@tests/servers/install.sh pgbouncer pgbouncer && touch $@ || true

$(VENV)/.etcd: $(VENV)/.python
	@tests/servers/install.sh etcd etcd-server && touch $@ || true

$(VENV)/.%: $(VENV)/.core pyproject.toml
	@echo "== installing what 'make $*' needs"
	@$(PIP) -e '.[$*]'
	@touch $@

# Targets above are kept between runs.
.PRECIOUS: $(VENV)/.%
