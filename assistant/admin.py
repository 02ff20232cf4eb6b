"""What people ask, what they got and whether it helped. Read-only.

Who is not a superuser sees only conversations whose evidence all lies in repositories they may read: an answer tells
about the code it was made from.
"""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Count, Exists, OuterRef, Q, QuerySet
from django.http import HttpRequest

from assistant import tokens
from assistant.audit import AuditEventAdmin
from assistant.models import ApiToken, Citation, Conversation, Feedback, Message
from indexing.access import Principal
from indexing.admin import RecordAdmin
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


admin.site.register(AuditEvent, AuditEventAdmin)


@admin.register(Conversation)
class ConversationAdmin(RecordAdmin):
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
class MessageAdmin(RecordAdmin):
    list_display = ("question_start", "asked_by", "state", "answered_by", "rating", "problem", "created_at")
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
    list_display = ("helpful", "reason", "comment", "message", "user", "created_at")
    list_filter = ("helpful", "reason")
    search_fields = ("comment", "message__question")
    date_hierarchy = "created_at"
    list_select_related = ("message", "user")
    ordering = ("-created_at",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Feedback]:
        return Feedback.objects.filter(message__conversation__in=readable_conversations(request))


@admin.register(ApiToken)
class ApiTokenAdmin(RecordAdmin):
    """Who has which tokens. Staff revoke a leaked one here; only its owner can make one."""

    list_display = ("name", "prefix", "user", "restricted", "created_at", "expires_at", "last_used_at", "revoked_at")
    list_filter = ("restricted",)
    search_fields = ("name", "prefix", "user__username")
    list_select_related = ("user",)
    fields = ("name", "prefix", "user", "scopes", "restricted", "created_at", "expires_at")
    actions = ("revoke_tokens",)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("assistant.change_apitoken"))

    @admin.action(description="Revoke", permissions=["revoke"])
    def revoke_tokens(self, request: HttpRequest, queryset: QuerySet[ApiToken]) -> None:
        for token in queryset:
            tokens.revoke(token)
            record(request.user, "token revoked", token)
