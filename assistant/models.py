"""Conversations and what their messages cite, written only through `conversations.py`; tokens; jobs of workers."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models import Q

from indexing.models import Repository


class ServiceAccount(models.Model):
    """A user that is no person: it cannot sign in, outlives whoever made it, and reads what its user was given."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="service_account")
    made_by = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="service_accounts"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.user.get_username()


class SignInAttempt(models.Model):
    """A try to sign in with a password that did not succeed (yet), counted by whom and from where."""

    kind = models.CharField(max_length=20)
    key = models.CharField(max_length=64, help_text="A keyed hash: what was typed as a name may be a password")
    at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        indexes = [models.Index(fields=["kind", "key", "at"], name="tries_by_key")]

    def __str__(self) -> str:
        return f"{self.kind} at {self.at:%H:%M}"


class ApiToken(models.Model):
    """Lets a program act for one person or service account, as far as its scopes and repositories go.

    Revoked, never deleted.

    `restricted` is kept apart from the list: a token whose last repository is gone reads nothing, not everything.
    """

    class Scope(models.TextChoices):
        READ = "read", "search, and read repositories, code and conversations"
        ASK = "ask", "ask questions and rate answers"
        WRITE = "write", "add, update and remove repositories"
        ADMIN = "admin", "what only staff may do"

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    token_sha256 = models.CharField(max_length=64, unique=True)
    prefix = models.CharField(
        max_length=12, help_text="The beginning of the token, so that people can tell theirs apart"
    )
    scopes = models.JSONField(default=list)
    restricted = models.BooleanField(default=False, help_text="Reads the listed repositories only")
    repositories = models.ManyToManyField(Repository, blank=True, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True, help_text="To the minute")
    revoked_at = models.DateTimeField(null=True, blank=True)
    minute = models.PositiveBigIntegerField(default=0, help_text="Of the last request, in minutes since 1970")
    requests_in_minute = models.PositiveIntegerField(default=0)
    day = models.PositiveIntegerField(default=0, help_text="Of the last request, in days since 1970")
    requests_in_day = models.PositiveIntegerField(default=0)
    requests_per_minute = models.PositiveIntegerField(
        null=True, blank=True, help_text="Instead of API_REQUESTS_PER_MINUTE"
    )
    requests_per_day = models.PositiveIntegerField(null=True, blank=True, help_text="Instead of API_REQUESTS_PER_DAY")

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"


class Conversation(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="conversations")
    token = models.ForeignKey(
        ApiToken,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="conversations",
        help_text="The token it was begun with; its answers read no more than that token",
    )
    for_everyone = models.BooleanField(
        default=False, help_text="Others read its answers, as in a channel: they are made from public repositories only"
    )
    title = models.CharField(max_length=200, blank=True)
    pinned = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    updated_at = models.DateTimeField(auto_now=True, db_index=True)

    class Meta:
        ordering = ["-updated_at"]

    def __str__(self) -> str:
        """Without its title: that tells what was asked, also where the admin only lists what goes with a person."""
        return f"conversation {self.pk}"


class Message(models.Model):
    """One question and its answer. A retry makes a new attempt number on the same message."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        STOPPED = "stopped"
        FAILED = "error"

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    conversation = models.ForeignKey(Conversation, on_delete=models.CASCADE, related_name="messages")
    position = models.PositiveIntegerField()
    request_id = models.UUIDField(unique=True, help_text="Made by the form; a double click stores one message")
    question = models.TextField()
    mode = models.CharField(max_length=10, default="explain")
    scope = models.JSONField(default=dict, blank=True, help_text="Pinned repository ids, path, languages")
    state = models.CharField(max_length=8, choices=State, default=State.QUEUED)
    attempt = models.PositiveSmallIntegerField(default=1)
    answer = models.TextField(
        blank=True, help_text="Markdown with [n] markers, as the model wrote it; never source text"
    )
    written = models.TextField(blank=True, help_text="What an earlier attempt wrote and this one goes on from")
    answered_by = models.CharField(max_length=200, blank=True, help_text="Model name; empty for an extractive answer")
    notices = models.JSONField(default=list, blank=True, help_text="Fallbacks and limits, as sentences")
    trace = models.JSONField(default=dict, blank=True)
    error = models.TextField(blank=True)
    finish_reason = models.CharField(max_length=20, blank=True)
    stop_requested = models.BooleanField(default=False)
    leased_until = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["position"]
        constraints = [models.UniqueConstraint(fields=["conversation", "position"], name="one_message_per_position")]

    def __str__(self) -> str:
        return f"message {self.pk}"

    @property
    def continuable(self) -> bool:
        """Whether a model wrote a part of this answer and could go on."""
        broken_off = self.state in (self.State.STOPPED, self.State.FAILED) or self.finish_reason == "length"
        return broken_off and bool(self.answer and self.answered_by)

    @property
    def finished(self) -> bool:
        return self.state in (self.State.DONE, self.State.STOPPED, self.State.FAILED)


class AnswerEvent(models.Model):
    """One stored step of an answer; a reconnecting browser resumes after the last sequence it saw."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="events")
    attempt = models.PositiveSmallIntegerField(default=1)
    sequence = models.PositiveIntegerField()
    name = models.CharField(max_length=12, help_text="stage, evidence, text, notice, done, stopped or error")
    data = models.JSONField()

    class Meta:
        ordering = ["sequence"]
        constraints = [
            models.UniqueConstraint(fields=["message", "attempt", "sequence"], name="one_event_per_sequence")
        ]

    def __str__(self) -> str:
        return f"{self.message_id}#{self.sequence} {self.name}"


class Citation(models.Model):
    """Evidence of an answer: coordinates only. `cited` tells whether the answer's text refers to it."""

    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="citations")
    attempt = models.PositiveSmallIntegerField(default=1)
    number = models.PositiveSmallIntegerField(help_text="The n of [n]")
    repository = models.ForeignKey(Repository, null=True, on_delete=models.SET_NULL, related_name="+")
    repository_name = models.CharField(max_length=200, help_text="As it was called when it was cited")
    commit = models.CharField(max_length=64)
    blob = models.CharField(max_length=64)
    path = models.BinaryField()
    encoding = models.CharField(max_length=30, default="utf-8")
    language = models.CharField(max_length=40, blank=True)
    kind = models.CharField(max_length=20, blank=True)
    symbol = models.CharField(max_length=500, blank=True)
    start_byte = models.PositiveIntegerField()
    end_byte = models.PositiveIntegerField()
    start_line = models.PositiveIntegerField()
    end_line = models.PositiveIntegerField()
    score = models.FloatField(default=0)
    cited = models.BooleanField(default=False)
    verified = models.BooleanField(default=False, help_text="The range exists in the blob at that commit")

    class Meta:
        ordering = ["number"]
        constraints = [
            models.UniqueConstraint(fields=["message", "attempt", "number"], name="one_citation_per_number"),
            models.CheckConstraint(condition=Q(end_byte__gte=models.F("start_byte")), name="citation_range_is_ordered"),
        ]

    def __str__(self) -> str:
        return f"[{self.number}] {self.display_path}:{self.start_line}-{self.end_line}"

    @property
    def display_path(self) -> str:
        return bytes(self.path).decode("utf-8", "backslashreplace")

    @property
    def file_name(self) -> str:
        return self.display_path.rsplit("/", 1)[-1]


class CitationUse(models.Model):
    """How often cited passages of a repository were opened and copied on one day. Not by whom, nor in which answer."""

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="+")
    day = models.DateField()
    opened = models.PositiveIntegerField(default=0)
    copied = models.PositiveIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "day"], name="one_row_per_repository_and_day")]

    def __str__(self) -> str:
        return f"{self.repository_id} on {self.day}: {self.opened} opened, {self.copied} copied"


class Feedback(models.Model):
    message = models.ForeignKey(Message, on_delete=models.CASCADE, related_name="feedback")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    helpful = models.BooleanField()
    reason = models.CharField(max_length=20, blank=True)
    comment = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        verbose_name_plural = "feedback"
        constraints = [models.UniqueConstraint(fields=["message", "user"], name="one_feedback_per_user")]

    def __str__(self) -> str:
        return "helpful" if self.helpful else f"not helpful: {self.reason}"


class ConversationShare(models.Model):
    """A link under which signed-in people see a conversation, each with their own rights. Deleting it ends the link."""

    conversation = models.OneToOneField(Conversation, on_delete=models.CASCADE, related_name="share")
    token = models.CharField(max_length=64, unique=True)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"share of {self.conversation_id}"


class SignInLink(models.Model):
    """A link that signs one person in once, printed on the terminal of whoever started the server."""

    token_sha256 = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"sign-in link for {self.user_id}"


class SlackAccount(models.Model):
    """Whose rights a person of a Slack workspace has here."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="slack_accounts")
    team_id = models.CharField(max_length=40)
    slack_user_id = models.CharField(max_length=40)
    name = models.CharField(max_length=200, blank=True, help_text="As Slack told it, for people to know it by")
    linked_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["pk"]
        constraints = [models.UniqueConstraint(fields=["team_id", "slack_user_id"], name="one_account_per_slack_user")]

    def __str__(self) -> str:
        return self.name or self.slack_user_id


class SlackLinkCode(models.Model):
    """What a signed-in person types in Slack, once, to link the two accounts."""

    code_sha256 = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    expires_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"Slack code for {self.user_id}"


class LeasedJob(models.Model):
    """Work that a worker does once, whatever the broker and the worker do: see `jobs.py`."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"

    state = models.CharField(max_length=8, choices=State, default=State.QUEUED)
    due_at = models.DateTimeField(help_text="Queued: when it is sent to a worker again. Running: the lease's end")
    holder = models.CharField(max_length=100, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0)
    error = models.CharField(max_length=1000, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        abstract = True
        indexes = [models.Index(fields=["state", "due_at"])]


class SlackJob(LeasedJob):
    """One question of Slack. Both keys are unique: Slack sends an event again, and one message as two events."""

    class Kind(models.TextChoices):
        MENTION = "mention", "a mention in a channel"
        SHARED = "shared", "a mention in a channel that another organisation shares"
        DIRECT = "direct", "a direct message"
        COMMAND = "command", "a slash command"

    event_key = models.CharField(max_length=200, unique=True, help_text="The event's or the command's id")
    message_key = models.CharField(max_length=200, unique=True, null=True, help_text="Team, channel and time")
    kind = models.CharField(max_length=8, choices=Kind)
    team_id = models.CharField(max_length=40)
    channel_id = models.CharField(max_length=40)
    slack_user_id = models.CharField(max_length=40)
    slack_name = models.CharField(max_length=200, blank=True)
    text = models.TextField(blank=True, help_text="Until it is answered; then the conversation has it")
    message_ts = models.CharField(max_length=40, blank=True)
    thread_ts = models.CharField(max_length=40, blank=True)
    response_url = models.CharField(max_length=500, blank=True)
    origin = models.CharField(max_length=300, help_text="How this server was called: what links begin with")
    private = models.BooleanField(default=False, help_text="Only the person who asked reads the answer")
    message = models.ForeignKey(Message, null=True, on_delete=models.SET_NULL, related_name="+")
    progress_ts = models.CharField(max_length=40, blank=True, help_text="The bot's message that becomes the answer")
    parts_sent = models.PositiveSmallIntegerField(default=0)

    def __str__(self) -> str:
        return self.event_key


class Callback(LeasedJob):
    """Where an answer is sent once it is complete: see `callbacks.py`."""

    message = models.OneToOneField(Message, on_delete=models.CASCADE, related_name="callback")
    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="+")
    url = models.CharField(max_length=1000)
    origin = models.CharField(max_length=300, help_text="How this server was called: what links begin with")
    status = models.PositiveSmallIntegerField(null=True, blank=True, help_text="What the receiver answered last")

    def __str__(self) -> str:
        return f"callback {self.pk}"  # its address may have a secret in it


class IdempotentReply(models.Model):
    """What a request under an idempotency key was answered with: see `idempotency.py`."""

    token = models.ForeignKey(ApiToken, on_delete=models.CASCADE, related_name="+")
    key = models.CharField(max_length=200)
    request_sha256 = models.CharField(max_length=64, help_text="Of method, address and body")
    status = models.PositiveSmallIntegerField(null=True, help_text="Empty while it is being worked on")
    body = models.TextField(blank=True)
    # Not a foreign key: removing a repository must not change what was answered.
    repository_id = models.PositiveBigIntegerField(null=True)
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        verbose_name_plural = "idempotent replies"
        constraints = [models.UniqueConstraint(fields=["token", "key"], name="one_reply_per_idempotency_key")]

    def __str__(self) -> str:
        return self.key
