"""Every deploy choice, read from the environment (or `.env`) and checked at import.

`.env.example` lists each variable with its default; a test keeps the two in step.
"""

from __future__ import annotations

import base64
import importlib.util
import os
import re
import secrets
from pathlib import Path
from wsgiref.headers import Headers

import dj_database_url
from csp.constants import NONE, SELF
from django.core.exceptions import ImproperlyConfigured

BASE_DIR = Path(__file__).resolve().parent.parent


def _load_dotenv(path: Path) -> None:
    """KEY=VALUE lines; what the process environment already has wins."""
    if not path.is_file():
        return
    for line in path.read_text().splitlines():
        key, separator, value = line.partition("=")
        if separator and not key.lstrip().startswith("#"):
            os.environ.setdefault(key.strip(), value.strip().strip("\"'"))


_load_dotenv(Path(os.environ.get("ENV_FILE") or BASE_DIR / ".env"))


def _text(name: str, default: str = "") -> str:
    return os.environ.get(name, default)


def _bool(name: str, default: bool) -> bool:
    value = os.environ.get(name, str(default)).lower()
    if value not in {"1", "true", "yes", "on", "0", "false", "no", "off", ""}:
        raise ImproperlyConfigured(f"{name} is {value!r}; use true or false")
    return value in {"1", "true", "yes", "on"}


def _number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    try:
        return int(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is {value!r}; use a whole number") from error


def _decimal(name: str, default: float) -> float:
    value = os.environ.get(name, str(default))
    try:
        return float(value)
    except ValueError as error:
        raise ImproperlyConfigured(f"{name} is {value!r}; use a number") from error


def _list(name: str, default: str = "") -> list[str]:
    return [part.strip() for part in os.environ.get(name, default).split(",") if part.strip()]


def _checked_keys(name: str, keys: list[str]) -> list[str]:
    """Keys of 32 bytes as URL-safe base64. A wrong one is not repeated in the error."""
    for number, key in enumerate(keys, start=1):
        try:
            right = len(base64.urlsafe_b64decode(key)) == 32
        except ValueError:
            right = False
        if not right:
            raise ImproperlyConfigured(
                f"Key {number} of {name} is not valid; make one with manage.py rotate_credentials --new-key"
            )
    return keys


def _checked_issuer(name: str, issuer: str) -> str:
    """Tokens of the provider are believed because they come over TLS from it."""
    if issuer and not re.match(r"https://|http://(localhost|127\.0\.0\.1)[:/]", issuer):
        raise ImproperlyConfigured(f"{name} is {issuer!r}; it has to begin with https://")
    if issuer and importlib.util.find_spec("allauth") is None:
        raise ImproperlyConfigured(
            f"{name} needs an extra that is not installed: pip install 'codebase-assistant[oidc]'"
        )
    return issuer


def _secret_key(data_dir: Path) -> str:
    """From the environment, else made once and kept beside the embedded database."""
    if key := os.environ.get("SECRET_KEY"):
        return key
    data_dir.mkdir(parents=True, exist_ok=True)
    file = data_dir / "secret_key"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_text()
    with os.fdopen(descriptor, "w") as handle:
        key = secrets.token_urlsafe(50)
        handle.write(key)
    return key


# Where everything that is not code lives: database, mirrors, index files, queue.
DATA_DIR = Path(_text("DATA_DIR", str(BASE_DIR / "var"))).resolve()
DATA_DIR.mkdir(parents=True, exist_ok=True)
# Copies of index files on the local disk, where DATA_DIR is a volume that machines share; empty: none.
SEGMENT_CACHE_DIR = _text("SEGMENT_CACHE_DIR")
SEGMENT_CACHE_MAX_MB = _number("SEGMENT_CACHE_MAX_MB", 10_000)

DEBUG = _bool("DEBUG", False)
SECRET_KEY = _secret_key(DATA_DIR)
# Loopback is always allowed: the health check and the sign-in link of the terminal use it.
ALLOWED_HOSTS = [*_list("ALLOWED_HOSTS"), "localhost", "127.0.0.1", "[::1]"]
CSRF_TRUSTED_ORIGINS = _list("CSRF_TRUSTED_ORIGINS")
HTTPS_ONLY = _bool("HTTPS_ONLY", False)
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE_SSL_REDIRECT = HTTPS_ONLY
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = _number("HSTS_SECONDS", 0)
# Whether all other hosts of the domain are served over TLS as well is not known here, and a preload list is for ever.
SILENCED_SYSTEM_CHECKS = ["security.W005", "security.W021"]
SESSION_COOKIE_SAMESITE = "Lax"
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "ninja",  # serves the API's documentation page without a CDN
    "django_htmx",
    "template_partials",
    "csp",
    "indexing",
    "search",
    "assistant",
]

MIDDLEWARE = [
    "assistant.observing.observing",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "csp.middleware.CSPMiddleware",
    "assistant.browser_caching.uncached_pages",
    "assistant.api_border.api_border",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.auth.middleware.LoginRequiredMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
]

CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": [NONE],
        "script-src": [SELF],
        "style-src": [SELF],
        "img-src": [SELF],
        "font-src": [SELF],
        "connect-src": [SELF],
        "frame-src": [SELF],  # the sandbox that diagrams are drawn in
        "form-action": [SELF],
        "base-uri": [NONE],
        "frame-ancestors": [NONE],
    }
}

ROOT_URLCONF = "assistant.urls"
ASGI_APPLICATION = "assistant.asgi.application"
LOGIN_URL = "sign_in"
LOGIN_REDIRECT_URL = "home"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "assistant.context_processors.interface",
            ]
        },
    }
]

DATABASES = {"default": dj_database_url.parse(_text("DATABASE_URL") or f"sqlite:///{DATA_DIR / 'db.sqlite3'}")}
# Of one process, PostgreSQL only. An open stream holds none, so a few serve hundreds of readers.
DATABASE_POOL_SIZE = _number("DATABASE_POOL_SIZE", 8)
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):
    # With the defaults, two writers and two readers gave 288 lock errors in 15 s; with these, none in 30 s.
    DATABASES["default"]["OPTIONS"] = {
        "transaction_mode": "IMMEDIATE",
        "timeout": 20,
        "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
    }
elif DATABASES["default"]["ENGINE"].endswith("postgresql"):
    DATABASES["default"]["CONN_HEALTH_CHECKS"] = True  # a connection that a restart of the server cut is not handed out
    DATABASES["default"]["OPTIONS"] = {
        **DATABASES["default"].get("OPTIONS", {}),
        "pool": {"min_size": 1, "max_size": DATABASE_POOL_SIZE, "timeout": 15.0, "max_idle": 60.0},
        "connect_timeout": 5,
    }

# The first compares passwords; the second only keeps sessions alive that began before there was a first.
AUTHENTICATION_BACKENDS = ["assistant.throttling.PasswordBackend", "django.contrib.auth.backends.ModelBackend"]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]

# Sign-in by OpenID Connect, with the extra `oidc`. Without an issuer none of it is loaded.
OIDC_ISSUER = _checked_issuer("OIDC_ISSUER", _text("OIDC_ISSUER"))
OIDC_NAME = _text("OIDC_NAME", "single sign-on")
OIDC_ALLOWED_DOMAINS = _list("OIDC_ALLOWED_DOMAINS")  # of verified addresses; empty: whoever the provider lets in
OIDC_GROUPS_CLAIM = _text("OIDC_GROUPS_CLAIM")  # its names become the person's groups at each sign-in
_OIDC_CLIENT = {"client_id": _text("OIDC_CLIENT_ID"), "secret": _text("OIDC_CLIENT_SECRET")}
if OIDC_ISSUER:
    INSTALLED_APPS += ["allauth", "allauth.account", "allauth.socialaccount"]
    INSTALLED_APPS += ["allauth.socialaccount.providers.openid_connect"]
    MIDDLEWARE += ["allauth.account.middleware.AccountMiddleware"]
    SOCIALACCOUNT_ADAPTER = "assistant.oidc.Adapter"
    SOCIALACCOUNT_PROVIDERS = {
        "openid_connect": {
            "OAUTH_PKCE_ENABLED": True,
            "SCOPE": ["openid", "profile", "email", *_list("OIDC_EXTRA_SCOPES")],
            "APPS": [
                {**_OIDC_CLIENT, "provider_id": "oidc", "name": OIDC_NAME, "settings": {"server_url": OIDC_ISSUER}},
            ],
        }
    }
    SOCIALACCOUNT_LOGIN_ON_GET = True  # a form would need the provider in the policy's form-action; `state` protects
    SOCIALACCOUNT_QUERY_EMAIL = False
    ACCOUNT_EMAIL_VERIFICATION = "none"
    ACCOUNT_UNIQUE_EMAIL = False  # an address never joins two accounts: whoever sets it at the provider would get both
    ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if HTTPS_ONLY else "http"

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "/static/"
STATIC_ROOT = DATA_DIR / "static"  # filled by collectstatic only; the finders serve without it
STATIC_ROOT.mkdir(exist_ok=True)
STATICFILES_DIRS = [BASE_DIR / "static"]
WHITENOISE_USE_FINDERS = True
# Kept and sent compressed: 3.5 MB of script would be loaded for a single diagram.
WHITENOISE_MIMETYPES = {"mermaid.min.js.gz": "text/javascript"}


def WHITENOISE_ADD_HEADERS_FUNCTION(headers: Headers, path: str, url: str) -> None:
    if url.endswith(".js.gz"):
        headers["Content-Encoding"] = "gzip"


DATA_UPLOAD_MAX_MEMORY_SIZE = 2 * 1024 * 1024

# Queue. The filesystem broker is for one machine; leases in our own tables make it safe (see indexing/tasks.py).
_QUEUE_DIR = DATA_DIR / "queue"
CELERY_BROKER_URL = _text("CELERY_BROKER_URL", "filesystem://")
if CELERY_BROKER_URL.startswith("filesystem:"):
    CELERY_BROKER_URL = "filesystem://localhost//"  # the host means nothing, but its absence is warned about
    for _name in ("messages", "control"):
        (_QUEUE_DIR / _name).mkdir(parents=True, exist_ok=True)
    CELERY_BROKER_TRANSPORT_OPTIONS = {
        "data_folder_in": str(_QUEUE_DIR / "messages"),
        "data_folder_out": str(_QUEUE_DIR / "messages"),
        "control_folder": str(_QUEUE_DIR / "control"),
        "polling_interval": 0.1,
    }
CELERY_TASK_IGNORE_RESULT = True
CELERY_TASK_ACKS_LATE = True  # short tasks; builds acknowledge early, their lease brings them back
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
# A worker takes from all of them unless `-Q` names some. Questions that came by Slack must not wait behind a build, so
# `manage.py up` gives them a worker of their own; which build is next is decided by indexing/queueing.py.
CELERY_TASK_QUEUES: dict[str, dict[str, str]] = {"answers": {}, "builds": {}, "descriptions": {}}
CELERY_TASK_DEFAULT_QUEUE = "answers"
CELERY_WORKER_HIJACK_ROOT_LOGGER = False  # LOGGING below says how lines look
CELERY_WORKER_REDIRECT_STDOUTS = False

# Git sources.
GIT_TIMEOUT_SECONDS = _number("GIT_TIMEOUT_SECONDS", 30)  # without any progress
GIT_ALLOWED_HOSTS = _list("GIT_ALLOWED_HOSTS")  # internal hosts that may be cloned from
GIT_HTTP_PROXY = _text("GIT_HTTP_PROXY")
# Hosting sites whose organisations may be imported: the address of the API, and a token that reads repositories.
HOSTING_APIS = {
    "github": (_text("GITHUB_API_URL", "https://api.github.com"), _text("GITHUB_TOKEN")),
    "gitlab": (_text("GITLAB_API_URL", "https://gitlab.com/api/v4"), _text("GITLAB_TOKEN")),
    "gitea": (_text("GITEA_API_URL", "https://gitea.com/api/v1"), _text("GITEA_TOKEN")),
}
# Encrypt the logins of private repositories: the first key writes, all can read.
CREDENTIALS_KEYS = _checked_keys("CREDENTIALS_KEY", _list("CREDENTIALS_KEY"))
LOCAL_REPOSITORY_ROOTS = [Path(p).resolve() for p in _list("LOCAL_REPOSITORY_ROOTS", str(BASE_DIR))]

# How often each source is asked for new commits; 0: only webhooks and people start updates.
REFRESH_MINUTES = _number("REFRESH_MINUTES", 15)

# Which files are indexed and how they are cut; sizes in characters unless the name says otherwise.
MAX_FILE_BYTES = _number("MAX_FILE_BYTES", 1_000_000)
CHUNK_TARGET_CHARS = _number("CHUNK_TARGET_CHARS", 500)
CHUNK_MAX_CHARS = _number("CHUNK_MAX_CHARS", 1500)
LINE_CHUNK_LINES = _number("LINE_CHUNK_LINES", 40)
LINE_CHUNK_OVERLAP = _number("LINE_CHUNK_OVERLAP", 15)
EMBEDDED_PATH_CHARS = _number("EMBEDDED_PATH_CHARS", 80)

# Embedding. Empty model = the all-MiniLM-L6-v2 weights that a dependency ships; else a path or a model name.
EMBEDDING_MODEL = _text("EMBEDDING_MODEL")
EMBEDDING_DIMENSIONS = _number("EMBEDDING_DIMENSIONS", 0)  # Matryoshka truncation; 0 = all
EMBEDDING_QUERY_PROMPT = _text("EMBEDDING_QUERY_PROMPT")
EMBEDDING_DOCUMENT_PROMPT = _text("EMBEDDING_DOCUMENT_PROMPT")
EMBEDDING_BATCH = _number("EMBEDDING_BATCH", 16)
EMBEDDING_TIMEOUT_SECONDS = _number("EMBEDDING_TIMEOUT_SECONDS", 120)  # for one batch
EMBEDDING_THREADS = _number("EMBEDDING_THREADS", 0)  # 0 = all cores but leave questions their share
EMBEDDING_PRECISION = _text("EMBEDDING_PRECISION", "auto")  # auto, float32, bfloat16

# Where sign bits are searched: in the mapped index files, or in Milvus, which is filled from them.
VECTOR_BACKEND = _text("VECTOR_BACKEND", "files")
if VECTOR_BACKEND not in ("files", "milvus"):
    raise ImproperlyConfigured(f"VECTOR_BACKEND is {VECTOR_BACKEND!r}; use files or milvus")
MILVUS_URL = _text("MILVUS_URL", "http://127.0.0.1:19530")
MILVUS_TOKEN = _text("MILVUS_TOKEN")  # user:password
MILVUS_COLLECTION = _text("MILVUS_COLLECTION", "codebase_assistant")  # its name begins so

# Language model, any name litellm knows ("ollama/llama3.1", "openai/gpt-...", "anthropic/claude-...").
LLM_MODEL = _text("LLM_MODEL")
LLM_API_BASE = _text("LLM_API_BASE")
LLM_API_KEY = _text("LLM_API_KEY")
LLM_CONTEXT_TOKENS = _number("LLM_CONTEXT_TOKENS", 8192)
LLM_MAX_ANSWER_TOKENS = _number("LLM_MAX_ANSWER_TOKENS", 900)
LLM_TIMEOUT_SECONDS = _number("LLM_TIMEOUT_SECONDS", 120)
LLM_PLAN_TIMEOUT_SECONDS = _number("LLM_PLAN_TIMEOUT_SECONDS", 8)
LLM_RERANK_TIMEOUT_SECONDS = _number("LLM_RERANK_TIMEOUT_SECONDS", 20)
DESCRIBE_CHUNKS = _bool("DESCRIBE_CHUNKS", False)
DESCRIBE_MAX_CHUNKS = _number("DESCRIBE_MAX_CHUNKS", 5000)  # per build
DESCRIBE_MAX_TOKENS = _number("DESCRIBE_MAX_TOKENS", 2_000_000)  # per build, prompt and reply
DESCRIBE_MAX_USD = _decimal("DESCRIBE_MAX_USD", 0.0)  # per repository in 30 days, by the ledger; 0: no limit

# Search.
SEARCH_REPOSITORIES = _number("SEARCH_REPOSITORIES", 8)  # how many are opened for a question that pins none
# Chunks that each list of each query may put forward; 15 instead of 50 lost .005 NDCG@10 (docs/evaluation.md).
SEARCH_CANDIDATES_PER_QUERY = _number("SEARCH_CANDIDATES_PER_QUERY", 50)
SEARCH_MINIMUM_COSINE = _decimal("SEARCH_MINIMUM_COSINE", 0.2)  # (1 + cosine) / 2 = 0.6
SIMILAR_MINIMUM_COSINE = _decimal("SIMILAR_MINIMUM_COSINE", 0.4)  # of "find similar code"
RERANK_CANDIDATES = _number("RERANK_CANDIDATES", 20)
# Empty: LLM_MODEL judges. "local/" and a folder: a cross-encoder of this machine. Else a name for litellm's rerank().
RERANK_MODEL = _text("RERANK_MODEL")
RERANK_API_BASE = _text("RERANK_API_BASE")
RERANK_API_KEY = _text("RERANK_API_KEY")
if RERANK_MODEL and not RERANK_MODEL.startswith("local/") and not RERANK_API_BASE:
    raise ImproperlyConfigured(
        f"RERANK_MODEL is {RERANK_MODEL}: set RERANK_API_BASE to the address that passages of code may be sent to, or "
        "use a cross-encoder of this machine: local/ and its folder."
    )
RERANK_TRUST = _decimal("RERANK_TRUST", 0.04)  # share of the best score that a grade of the model is worth
EVIDENCE_PASSAGES = _number("EVIDENCE_PASSAGES", 8)

# JSON API.
API_REQUESTS_PER_MINUTE = _number("API_REQUESTS_PER_MINUTE", 300)  # of one token
API_REQUESTS_PER_DAY = _number("API_REQUESTS_PER_DAY", 100_000)  # of one token
API_CORS_ORIGINS = _list("API_CORS_ORIGINS")  # web pages that may call the API: https://portal.example, or *
CALLBACK_ALLOWED_HOSTS = _list("CALLBACK_ALLOWED_HOSTS")  # internal hosts that answers may be sent to
API_MAX_BODY_BYTES = _number("API_MAX_BODY_BYTES", 256_000)
MCP_TOKEN = _text("MCP_TOKEN")  # whose rights `manage.py mcp` has; empty: the operator's

# Slack: the app's bot token and signing secret (docs/slack.md). The address is another one for GovSlack only.
SLACK_BOT_TOKEN = _text("SLACK_BOT_TOKEN")
SLACK_SIGNING_SECRET = _text("SLACK_SIGNING_SECRET")
SLACK_API_URL = _text("SLACK_API_URL", "https://slack.com/api/")

# Privacy: may staff see what single people asked (dashboard, administration, export)?
STAFF_SEES_QUESTIONS = _bool("STAFF_SEES_QUESTIONS", False)

# Days after which rows are removed; 0 keeps them for ever.
KEEP_CONVERSATIONS_DAYS = _number("KEEP_CONVERSATIONS_DAYS", 0)  # since the last question; pinned ones stay
KEEP_EVENTS_DAYS = _number("KEEP_EVENTS_DAYS", 30)  # steps of answers, for readers that reconnect
KEEP_TRACES_DAYS = _number("KEEP_TRACES_DAYS", 0)  # how answers came about
KEEP_USAGE_DAYS = _number("KEEP_USAGE_DAYS", 0)  # the ledger of model calls, which the dashboard adds up
KEEP_BUILDS_DAYS = _number("KEEP_BUILDS_DAYS", 90)  # builds that newer ones replaced

# Who may read `/metrics`: whoever sends this as a bearer token; empty: this machine only.
METRICS_TOKEN = _text("METRICS_TOKEN")

LOG_LEVEL = _text("LOG_LEVEL", "INFO")
LOG_FORMAT = _text("LOG_FORMAT", "line")
if LOG_FORMAT not in ("line", "json"):
    raise ImproperlyConfigured(f"LOG_FORMAT is {LOG_FORMAT!r}; use line or json")
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {
        "line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"},
        "json": {"()": "assistant.json_logs.JsonFormatter"},
    },
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": LOG_FORMAT}},
    "root": {"handlers": ["stderr"], "level": "WARNING"},
    "loggers": {
        **{name: {"level": LOG_LEVEL} for name in ("indexing", "search", "assistant")},
        # A line for each request is for collectors; people who watch `make run` see what matters.
        "assistant.observing": {"level": LOG_LEVEL if LOG_FORMAT == "json" else "WARNING"},
    },
}
