"""Registers the app with Django, and with it the Celery application that tasks are sent through."""

from django.apps import AppConfig


class AssistantConfig(AppConfig):
    name = "assistant"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        import assistant.celery  # noqa: F401
