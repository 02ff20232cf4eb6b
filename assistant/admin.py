"""What people ask, what they got and whether it helped: to be read, and the first only with STAFF_SEES_QUESTIONS.

Who is not a superuser sees only conversations whose evidence all lies in repositories they may read: an answer tells
about the code it was made from.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect

from assistant import tokens
from assistant.audit import AuditEventAdmin
from assistant.jobs_admin import CallbackAdmin, SlackJobAdmin
from assistant.models import ApiToken, Callback, Citation, Conversation, Feedback, Message, SlackJob
from indexing.access import Principal
from indexing.admin import AuditedAdmin, RecordAdmin
from indexing.audit import record
from indexing.models import AuditEvent, Repository


def readable_conversations(request: HttpRequest) -> QuerySet[Conversation]:
    principal = Principal.of_user(request.user)
    if principal.sees_all:
        return Conversation.objects.all()
    readable = Repository.objects.visible_to(principal)
    # A repository that is gone can't be judged any more, so it counts as one that may not be read.
    hidden = Citation.objects.filter(Q(repository=None) | ~Q(repository__in=readable))
    return Conversation.objects.filter(~Exists(hidden.filter(message__conversation=OuterRef("pk"))))


class PeopleAdmin(AuditedAdmin, UserAdmin):
    """As Django has it, and what is changed is in the audit log."""


class GroupsAdmin(AuditedAdmin, GroupAdmin):
    """The same for groups."""


admin.site.register(AuditEvent, AuditEventAdmin)
admin.site.register(SlackJob, SlackJobAdmin)
admin.site.register(Callback, CallbackAdmin)
admin.site.unregister([User, Group])
admin.site.register(User, PeopleAdmin)
admin.site.register(Group, GroupsAdmin)


class QuestionsAdmin(RecordAdmin):
    """Who asked what: here only where STAFF_SEES_QUESTIONS allows it, for superusers too."""

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # Any: a row of any model
        return settings.STAFF_SEES_QUESTIONS and super().has_view_permission(request, obj)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return settings.STAFF_SEES_QUESTIONS and super().has_module_permission(request)


@admin.register(Conversation)
class ConversationAdmin(QuestionsAdmin):
    list_display = ("title", "owner", "questions", "created_at", "updated_at")
    search_fields = ("title", "owner__username")
    date_hierarchy = "created_at"
    list_select_related = ("owner",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Conversation]:
        return readable_conversations(request).annotate(question_count=Count("messages")).order_by("-updated_at")

    @admin.display(description="questions", ordering="question_count")
    def questions(self, conversation: Conversation) -> int:
        return int(getattr(conversation, "question_count", 0))


@admin.register(Message)
class MessageAdmin(QuestionsAdmin):
    list_display = ("question_start", "asked_by", "created_at", "state", "rating", "problem", "answered_by")
    list_filter = ("state", "mode", "feedback__helpful", "answered_by")
    search_fields = ("question", "conversation__owner__username")
    date_hierarchy = "created_at"
    list_select_related = ("conversation__owner",)
    ordering = ("-created_at",)
    fields = (
        *("conversation", "position", "question", "mode", "state", "attempt", "answer", "answered_by"),
        *("notices", "error", "finish_reason", "created_at", "finished_at"),
    )

    def get_queryset(self, request: HttpRequest) -> QuerySet[Message]:
        return Message.objects.filter(conversation__in=readable_conversations(request)).prefetch_related("feedback")

    def get_fields(self, request: HttpRequest, obj: Message | None = None) -> tuple[str, ...]:
        """Notices may name and count repositories that only the asker can see, so only superusers see notices."""
        sees_all = Principal.of_user(request.user).sees_all
        return tuple(name for name in self.fields if sees_all or name != "notices")

    @admin.display(description="question", ordering="question")
    def question_start(self, message: Message) -> str:
        return message.question[:120]

    @admin.display(description="asked by", ordering="conversation__owner__username")
    def asked_by(self, message: Message) -> str:
        return message.conversation.owner.get_username()

    @admin.display(description="feedback")
    def rating(self, message: Message) -> str:
        return ", ".join(str(feedback) for feedback in message.feedback.all())

    @admin.display(description="error")
    def problem(self, message: Message) -> str:
        return message.error[:120]


@admin.register(Feedback)
class FeedbackAdmin(RecordAdmin):
    """Opinions are for staff to read; whose they are, and about which question, only with STAFF_SEES_QUESTIONS."""

    fields = list_display = ("helpful", "reason", "comment", "question", "user", "created_at")
    list_filter = ("helpful", "reason")
    actions = ("evaluate",)
    date_hierarchy = "created_at"
    list_select_related = ("message", "user")
    ordering = ("-created_at",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feedback]:
        return Feedback.objects.filter(message__conversation__in=readable_conversations(request))

    def get_fields(self, request: HttpRequest, obj: Feedback | None = None) -> tuple[str, ...]:
        return self.get_list_display(request)

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        names = () if settings.STAFF_SEES_QUESTIONS else ("question", "user")
        return tuple(name for name in self.list_display if name not in names)

    def get_search_fields(self, request: HttpRequest) -> tuple[str, ...]:
        return ("comment", "message__question") if settings.STAFF_SEES_QUESTIONS else ("comment",)

    @admin.display(description="question")
    def question(self, feedback: Feedback) -> str:
        return feedback.message.question[:120]

    def has_evaluate_permission(self, request: HttpRequest) -> bool:
        return settings.STAFF_SEES_QUESTIONS and request.user.has_perm("search.add_question")

    @admin.action(description="Make an evaluation question of the first one chosen", permissions=["evaluate"])
    def evaluate(self, request: HttpRequest, queryset: QuerySet[Feedback]) -> HttpResponse:
        return redirect("add_evaluation_question", queryset[0].message_id)


@admin.register(ApiToken)
class ApiTokenAdmin(RecordAdmin):
    """Who has which tokens. Staff revoke a leaked one here and set limits of its own; only its owner can make one."""

    list_display = ("name", "prefix", "user", "restricted", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = ("restricted",)
    search_fields = ("name", "prefix", "user__username")
    list_select_related = ("user",)
    fields = (
        *("name", "prefix", "user", "scopes", "restricted", "created_at", "expires_at"),
        *("requests_per_minute", "requests_per_day"),
    )
    readonly_fields = ("name", "prefix", "user", "scopes", "restricted", "created_at", "expires_at")
    actions = ("revoke_tokens",)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # Any: a row of any model
        """For the two limits; the rest is read-only."""
        return bool(request.user.has_perm("assistant.change_apitoken"))

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("assistant.change_apitoken"))

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_tokens(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset:
            tokens.revoke(token)
            record(request.user, "token revoked", token)
