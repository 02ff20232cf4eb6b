# One image for web, workers and scheduler. Nothing is downloaded at run time: the embedding model is in a package.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends git openssh-client \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --create-home --uid 10001 assistant

WORKDIR /app
COPY pyproject.toml ./
# torch for CPUs is a tenth of the size of that for GPUs: name an index that has it.
ARG PIP_ARGS=""
RUN python -c "import tomllib; p = tomllib.load(open('pyproject.toml', 'rb'))['project']; \
    extras = [d for name, more in p['optional-dependencies'].items() if name != 'dev' for d in more]; \
    print('\n'.join(p['dependencies'] + extras))" \
    > requirements.txt \
    && pip install --no-cache-dir $PIP_ARGS --requirement requirements.txt
COPY manage.py ./
COPY indexing indexing
COPY search search
COPY assistant assistant
COPY templates templates
COPY static static

ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 OMP_WAIT_POLICY=PASSIVE \
    DATA_DIR=/data LOG_FORMAT=json ENV_FILE=/dev/null
RUN mkdir /data && chown assistant /data
VOLUME /data
USER assistant
EXPOSE 8000
CMD ["python", "-m", "uvicorn", "assistant.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "on", "--log-level", "warning", "--no-server-header", "--no-access-log", "--timeout-graceful-shutdown", "20"]
