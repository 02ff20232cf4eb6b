"""The settings of a test run: the defaults of the project in a folder of their own, whatever the machine has set.

pytest-django loads settings before any conftest, so what must hold at import is set here. TEST_DATABASE_URL and
TEST_BROKER_URL choose other services than SQLite and a queue in memory.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from pathlib import Path

_PROJECT = Path(__file__).resolve().parent.parent

for _name in re.findall(r"^#([A-Z_]+)=", (_PROJECT / ".env.example").read_text(), flags=re.MULTILINE):
    os.environ.pop(_name, None)

os.environ["ENV_FILE"] = os.devnull
_data = tempfile.mkdtemp(prefix="codebase-assistant-tests-")
atexit.register(shutil.rmtree, _data, ignore_errors=True)
os.environ["DATA_DIR"] = _data
os.environ["SECRET_KEY"] = "only-for-tests-" + "x" * 50
os.environ["CELERY_BROKER_URL"] = os.environ.get("TEST_BROKER_URL") or "memory://"
os.environ["DATABASE_URL"] = os.environ.get("TEST_DATABASE_URL", "")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["GIT_CONFIG_GLOBAL"] = os.devnull
os.environ["GIT_CONFIG_NOSYSTEM"] = "1"

from assistant.settings import *  # noqa: E402, F403
from assistant.settings import DATA_DIR, DATABASES  # noqa: E402

# A file, not memory: answers run in other threads, and a live server needs the rows that a test made.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    DATABASES["default"]["TEST"] = {"NAME": str(DATA_DIR / "test.sqlite3")}
    DATABASES["default"]["OPTIONS"]["init_command"] = "PRAGMA journal_mode=WAL; PRAGMA synchronous=OFF;"

else:
    # A lock that a thread of another test never gives back becomes an error that names it, not a run without an end.
    DATABASES["default"]["OPTIONS"]["options"] = "-c lock_timeout=60s -c idle_in_transaction_session_timeout=300s"
    # Threads of tests end without closing what they opened; a pool would wait for it. tests/test_services.py has one.
    DATABASES["default"]["OPTIONS"].pop("pool")

CELERY_BROKER_CONNECTION_TIMEOUT = 30.0  # a broker on a busy machine greets late
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]  # fast; no real password is ever hashed here
EMBEDDING_THREADS = 1
