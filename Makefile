# Everything runs in a virtual environment that is made here, in .venv, when it is first needed.

# Any Python from 3.11 on; `make PYTHON=…` chooses another one.
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
# Each process takes the next test when it is done with its own, so that no long file is the last.
PYTEST := $(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal

# Tests make thousands of stores and throw them away: in memory, where there is room for them.
IN_MEMORY := $(shell df -Pm /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 >= 2048 { print "/dev/shm" }')
test test-oldest test-adapters coverage: export TMPDIR := $(or $(IN_MEMORY),$(TMPDIR),/tmp)
# They also start thousands of processes, none of which should have to compile Clew again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-oldest coverage test-adapters test-browser test-agents torture lint bench bench-quick bench-plot docs clean help

help: ## what there is to make
	@grep -E '^[a-z-]+:.*##' Makefile | sed 's/:.*## /\t/' | sort

demo: $(VENV)/.core ## watch an agent get killed, resume, fork and rewind
	@$(BIN)/clew demo

test: $(VENV)/.test $(VENV)/.pgbouncer ## run all tests
	@echo "== running the tests"
	@$(PYTEST) --ignore tests/adapters --ignore tests/browser --ignore tests/agents $(ARGS)

OLDEST := $(VENV)/oldest
# What these try does not reach the dependencies in other ways than the rest does.
OLDEST_LEAVES_OUT := adapters browser agents faults failover hostile interchange concurrency model snapshots docs

test-oldest: $(OLDEST)/.installed ## run tests on the oldest dependencies that pyproject.toml allows
	@echo "== running tests on the oldest dependencies"
	@$(OLDEST)/bin/python -m pytest -n logical --maxprocesses 4 --dist worksteal \
		$(OLDEST_LEAVES_OUT:%=--ignore tests/%) $(ARGS)

test-adapters: $(VENV)/.adapters ## run the tests of the adapters, with the frameworks installed
	@echo "== running the tests of the adapters"
	@$(PYTEST) tests/adapters $(ARGS)

test-browser: $(VENV)/.browser $(VENV)/.chromium $(VENV)/.axe ## try the viewer in a real browser
	@echo "== running the tests in a browser"
	@$(BIN)/python -m pytest tests/browser $(ARGS)

test-agents: $(VENV)/.test $(VENV)/.agents ## let agents themselves open the sessions that we write
	@echo "== running the tests with the agents' own code"
	@$(BIN)/python -m pytest tests/agents $(ARGS)

torture: $(VENV)/.torture $(VENV)/.etcd $(VENV)/.machine ## break the stores on purpose, in every way, and try in full what 'make test' samples
	@$(BIN)/python tests/faults/torture.py $(ARGS)

# Folders: to find a package by its name, coverage imports it, and then msgspec is there twice.
COMMA := ,
SPACE := $(subst ,, )
COVERED := $(subst $(SPACE),$(COMMA),$(addprefix $(CURDIR)/src/clew/,core engines context messages))

# The tests as they are, only slower; the second list is of branches that no test took.
coverage: $(VENV)/.coverage ## which branches of core, engines, context and messages the tests take
	@rm -f $(VENV)/coverage*
	@COVERAGE_FILE=$(CURDIR)/$(VENV)/coverage $(BIN)/coverage run --source=$(COVERED) -m pytest -n logical --maxprocesses 4 --dist worksteal \
		--ignore tests/adapters --ignore tests/browser --ignore tests/agents --ignore tests/docs $(ARGS) || echo "== some tests failed"
	@COVERAGE_FILE=$(CURDIR)/$(VENV)/coverage $(BIN)/coverage combine -q
	@COVERAGE_FILE=$(CURDIR)/$(VENV)/coverage $(BIN)/coverage report

lint: $(VENV)/.lint ## style, strict types, tidiness
	@$(BIN)/ruff check src tests bench docs tools
	@$(BIN)/ruff format --check src tests bench docs tools
	@$(BIN)/mypy
	@$(BIN)/mypy --config-file= --strict tests/typing/user_program.py tests/typing/async_user_program.py
	@$(BIN)/pyright
	@$(BIN)/python -m pytest tests/test_tidy.py
	@$(BIN)/python bench/house.py

bench: $(VENV)/.bench ## measure, beside the peers; ONLY=append,fork measures a part
	@$(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-quick: $(VENV)/.test ## measure the core alone, in less than three minutes; ONLY=… works here too
	@CLEW_BENCH_QUICK=1 $(BIN)/python -m bench $(if $(ONLY),--only $(ONLY)) $(ARGS)

bench-plot: $(VENV)/.bench ## measure costs by length and by threads, and draw docs/pictures/costs.svg
	@$(BIN)/python -m bench.plot $(ARGS)

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

$(OLDEST)/.installed: $(VENV)/.python pyproject.toml tools/oldest.py
	@echo "== making an environment of the oldest dependencies in $(OLDEST)"
	@$(BIN)/python -m venv $(OLDEST)
	@$(BIN)/python tools/oldest.py async mcp postgres redact viewer watch > $(OLDEST)/constraints.txt
	@$(OLDEST)/bin/python -m pip --disable-pip-version-check install --quiet -e '.[test,watch]' -c $(OLDEST)/constraints.txt
	@touch $@

# Servers that some tests need and that PyPI does not have; without them those tests are skipped.
$(VENV)/.pgbouncer: $(VENV)/.python
	@tests/servers/install.sh pgbouncer pgbouncer && touch $@ || true

$(VENV)/.etcd: $(VENV)/.python
	@tests/servers/install.sh etcd etcd-server && touch $@ || true

# A virtual machine whose power is cut.
$(VENV)/.machine: $(VENV)/.python
	@tests/servers/install.sh qemu-system-x86_64 qemu-system-x86 && tests/servers/install.sh mke2fs e2fsprogs \
		&& tests/servers/kernel.sh $(VENV)/kernel && touch $@ || true

# A browser, and what looks for barriers in pages: the tests that need them are skipped without.
$(VENV)/.chromium: $(VENV)/.python
	@tests/servers/install.sh chromium chromium && touch $@ || true

$(VENV)/.axe: $(VENV)/.python
	@command -v npm >/dev/null && npm install --silent --no-save --no-package-lock --prefix $(VENV)/npm axe-core@4 \
		&& touch $@ || echo "== no axe-core: the tests that need it are skipped"

# Agents whose sessions we write, in versions that we have tried: about 700 MB, mostly of binaries.
$(VENV)/.agents: $(VENV)/.python
	@$(PIP) 'claude-agent-sdk>=0.2.180,<0.3' || echo "== no claude-agent-sdk: its tests are skipped"
	@command -v npm >/dev/null && npm install --silent --no-save --no-package-lock --prefix $(VENV)/agents \
		@earendil-works/pi-coding-agent@0.74.2 @openai/codex@0.169.0 opencode-ai@1.18.33 \
		&& touch $@ || echo "== no agents from npm: the tests that need them are skipped"

$(VENV)/.%: $(VENV)/.core pyproject.toml
	@echo "== installing what 'make $*' needs"
	@$(PIP) -e '.[$*]'
	@touch $@

# Targets above are kept between runs.
.PRECIOUS: $(VENV)/.%
