# The commands of this repository. They need only Python 3.11 or newer and make. `make` without a target lists them.

# Interpreters for the virtual environment; the first one that is new enough is used.
PYTHON ?= python3 python3.11 python3.12 python3.13 python3.14
# With LOCKED=1, as CI has it, a new environment gets what Reverie needs as requirements.lock names it, and pip refuses
# files with other hashes. Torch, whose build depends on the index, and the tools of development come without hashes.
LOCKED ?=
# Arguments for `demo`, `story`, `up`, `test` and `bench`, as in: make test ARGS="-k broker"
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
PY := $(BIN)/python
INSTALLED := $(VENV)/.installed
# Each process gets a share of the tests, file by file, since those of one file share what is slow to start, and takes
# over some of another's when it has no more. Three processes more than cores, as tests of other processes wait for them
# seven tenths of their time: tests/conftest.py begins each share with these.
PARALLEL := --numprocesses $(shell expr $$(getconf _NPROCESSORS_ONLN) + 3) --dist worksteal
# What says the same on both engines: tests that open no store, or bring a PostgreSQL server of their own.
OF_NO_ENGINE := $(patsubst %,--ignore=%,$(wildcard tests/integration/test_postgres*.py)) \
  $(patsubst %,--ignore=tests/integration/test_%.py,broker broker_full_disk inbox_properties installation \
  mcp_conformance monitoring multilingual_embedder niceness sentence_transformers_embedder)
# Less than a minute of what runs on PostgreSQL, for `make check`: claims, triggers, indexes, filters, verification.
CHECKED_ON_POSTGRES := $(patsubst %,tests/unit/test_%.py,forgets_interrupted ingest items live_first recall_events \
  reindex search_isolation stored_amounts tombstones undo_properties verify work_queue)
# Tests start hundreds of processes. Without compiled modules each would compile the same modules again, and so would
# each of pytest's.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo story up test test-quick test-properties test-mcp test-postgres check check-docs bench dist lock format docs clean
.DELETE_ON_ERROR:

help: ## list the commands
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' Makefile | while IFS='|' read -r name what; do \
	  printf '  make %-11s%s\n' "$$name" "$$what"; done

install: $(INSTALLED) ## create .venv and install everything into it; the other targets do this when needed

demo: $(INSTALLED) ## start the whole stack, store a conversation, ask questions about it, stop
	@$(PY) -m cli demo $(ARGS)

story: $(INSTALLED) ## simulate thirty days of an agent, with all jobs, and measure what they do
	@$(PY) -m benchmarks.story $(ARGS)

up: $(INSTALLED) ## run the whole stack until Ctrl-C
	@$(PY) -m cli up $(ARGS)

test: $(INSTALLED) ## run all tests, on all cores
	@$(PY) -m pytest $(PARALLEL) $(ARGS)

test-quick: $(INSTALLED) ## run most unit tests, for daily work: under two minutes on two cores
	@$(PY) -m pytest $(PARALLEL) -m "not slow" tests/unit $(ARGS)

check: $(INSTALLED) ## what CI runs: lint, format, types, import rules, generated docs, tests
	@echo "== ruff check"; $(PY) -m ruff check .
	@echo "== ruff format"; $(PY) -m ruff format --check .
	@echo "== import rules"; $(BIN)/lint-imports --no-cache
	@echo "== generated docs"; $(MAKE) --no-print-directory check-docs
	@# Types take most of a minute of one core: they are checked beside the tests, and the outcome is shown after them.
	@typed=$$(mktemp); trap 'rm -f "$$typed"' EXIT; $(PY) -m mypy >"$$typed" 2>&1 & types=$$!; failed=; \
	  { echo "== pytest"; $(PY) -m pytest $(PARALLEL); } && \
	  { echo "== pytest on PostgreSQL"; $(PY) -m pytest $(PARALLEL) --postgres $(CHECKED_ON_POSTGRES); } || failed=1; \
	  echo "== mypy"; wait $$types || failed=1; cat "$$typed"; test -z "$$failed"

test-properties: $(INSTALLED) ## run the tests of random steps for long: 20,000 steps each, or PROPERTY_STEPS
	@PROPERTY_STEPS=$${PROPERTY_STEPS:-20000} $(PY) -m pytest -n 0 -k properties tests $(ARGS)

test-mcp: $(INSTALLED) ## run the public conformance suite of MCP: needs npm, and fetches 240 MB into build/
	@npm install --silent --no-audit --no-fund --prefix build/mcp node@22 @modelcontextprotocol/conformance@0.2.0-alpha.12
	@MCP_CONFORMANCE=$(CURDIR)/build/mcp $(PY) -m pytest -n 0 tests/integration/test_mcp_conformance.py $(ARGS)

test-postgres: $(INSTALLED) ## run all tests with a real PostgreSQL server in place of SQLite files
	@$(PY) -m pytest $(PARALLEL) --postgres $(OF_NO_ENGINE) $(ARGS)

bench: $(INSTALLED) ## run all benchmarks (takes a while)
	@$(PY) -m benchmarks $(ARGS)

dist: ## build the wheel, which installs alone, into dist/; needs no .venv
	@rm -rf build/lib build/bdist.*
	@set -e; python=$(PY); test -x $$python || { python3 -m venv build/venv; python=build/venv/bin/python; }; \
	  $$python -m pip wheel -qq --no-input --progress-bar off --no-deps --wheel-dir dist .
	@ls dist/*.whl

lock: $(INSTALLED) ## write requirements.lock: the versions and hashes of the image's packages
	@$(PY) -m pip install -qq 'uv>=0.13,<0.14'
	@{ echo "# All packages of the image but torch, whose builds differ by processor and accelerator, with the hashes of their files."; \
	  echo "# Written by: make lock"; \
	  $(PY) -m uv pip compile pyproject.toml --extra local --extra monitoring --generate-hashes --python-version 3.11 \
	    --python-platform x86_64-manylinux_2_28 --no-emit-index-url --no-header --no-annotate --quiet \
	  | awk '/^[a-zA-Z0-9]/ { kept = !/^(torch|triton|nvidia-|cuda-)/ } kept'; } > requirements.lock.new
	@mv requirements.lock.new requirements.lock

format: $(INSTALLED) ## fix what ruff can fix
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

check-docs: $(INSTALLED) ## check that the generated pages and statements are those of the code
	@$(PY) -m generators --check

docs: $(INSTALLED) ## regenerate the pages of settings and commands, PostgreSQL's schema and statements, TypeScript's types
	@$(PY) -m generators
	@$(PY) clients/typescript/generate.py

clean: ## remove .venv and all caches, but not the data in .reverie
	rm -rf $(VENV) build dist *.egg-info client/build client/*.egg-info
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Installs again when a pyproject.toml changes. An incomplete environment is made again from scratch. The client is
# installed beside the server's distribution, which carries the same code, because its editable install is an entry of
# sys.path: see client/pyproject.toml.
$(INSTALLED): pyproject.toml client/pyproject.toml
	@set -e; found=; \
	for candidate in $(PYTHON); do \
	  if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$candidate; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "Reverie needs Python 3.11 or newer; none found among: $(PYTHON)." >&2; \
	  echo "Install it, or give its path: make PYTHON=/path/to/python3.12" >&2; exit 1; \
	fi; \
	if ! $(PY) -m pip --version >/dev/null 2>&1; then \
	  echo "Creating $(VENV) with $$("$$found" --version)."; \
	  "$$found" -m venv --clear $(VENV); \
	fi; \
	echo "Installing Reverie and its dependencies. The first time takes a few minutes, mostly for torch."; \
	export PIP_DISABLE_PIP_VERSION_CHECK=1; \
	if [ -n "$(LOCKED)" ]; then \
	  if $(PY) -c 'import platform as p, sys; sys.exit((sys.version_info[:2], sys.platform, p.machine(), p.libc_ver()[0]) != ((3, 11), "linux", "x86_64", "glibc"))'; then \
	    $(PY) -m pip install -qq --no-input --progress-bar off --require-hashes --no-deps -r requirements.lock; \
	  else echo "requirements.lock is for Python 3.11 on Linux x86-64: the newest versions are installed instead."; fi; \
	fi; \
	rm -rf *.egg-info client/*.egg-info; \
	$(PY) -m pip install -qq --no-input --progress-bar off -e ./client -e '.[local,dev]'; \
	touch $@; \
	echo "Installed."
