"""The Celery application; `celery -A assistant worker` starts it."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")

app = Celery("assistant")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()
