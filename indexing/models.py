"""What is indexed and how far each build got. Source text and chunk coordinates are never in these tables."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any, Self

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from django.utils.text import slugify

from indexing.access import Principal


def new_webhook_secret() -> str:
    return secrets.token_urlsafe(32)


class Credential(models.Model):
    """A login for a hosting site. It is only ever used for its own origin, and only its ciphertext is stored."""

    class Kind(models.TextChoices):
        TOKEN = "token", "access token"
        KEY = "key", "SSH key"
        SITE = "site", "token of the settings"

    kind = models.CharField(max_length=5, choices=Kind)
    origin = models.CharField(max_length=300, help_text="Scheme, host and port; the secret goes nowhere else")
    username = models.CharField(max_length=100, blank=True)
    sealed = models.TextField(blank=True, help_text="Encrypted with the first key of CREDENTIALS_KEY")
    fingerprint = models.CharField(
        max_length=64, blank=True, help_text="Of the public key, or a keyed hash of the token"
    )
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL, related_name="git_credentials"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["owner", "kind", "origin", "username", "fingerprint"],
                name="one_credential_per_secret_of_a_person",
            )
        ]

    def __str__(self) -> str:
        return f"{self.get_kind_display()} for {self.origin}"


class Mirror(models.Model):
    """One bare clone per URL and login, shared by every repository (ref) that reads it.

    What was fetched with a login is never shared with a repository that was added without it, or with another one.
    """

    class Kind(models.TextChoices):
        REMOTE = "remote", "Git URL"
        LOCAL = "local", "local path"

    url = models.CharField(max_length=2000, help_text="Normalised, never with credentials")
    credential = models.ForeignKey(Credential, null=True, blank=True, on_delete=models.PROTECT, related_name="mirrors")
    kind = models.CharField(max_length=8, choices=Kind, default=Kind.REMOTE)
    default_branch = models.CharField(max_length=255, blank=True)
    size_bytes = models.BigIntegerField(default=0)
    fetched_at = models.DateTimeField(null=True, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["url"], condition=Q(credential=None), name="one_open_mirror_per_url"),
            models.UniqueConstraint(fields=["url", "credential"], name="one_mirror_per_login"),
        ]

    def __str__(self) -> str:
        return self.url

    @property
    def path(self) -> Path:
        return Path(settings.DATA_DIR) / "mirrors" / f"{self.pk}.git"


class Organisation(models.Model):
    """An organisation, group or person of a hosting site whose repositories are kept in step with its list there."""

    class Site(models.TextChoices):
        GITHUB = "github", "GitHub"
        GITLAB = "gitlab", "GitLab"
        GITEA = "gitea", "Gitea"

    site = models.CharField(max_length=6, choices=Site)
    name = models.CharField(max_length=200, help_text="As in its address: `pallets`, or `group/subgroup` on GitLab")
    include = models.CharField(
        max_length=1000, default="*", help_text="Patterns of names, separated by commas, such as `web-*, docs`"
    )
    exclude = models.CharField(max_length=1000, blank=True, help_text="Patterns of names to leave out")
    with_archived = models.BooleanField(default=False, help_text="Also add repositories that are archived there")
    groups = models.ManyToManyField(
        "auth.Group", blank=True, related_name="+", help_text="Who reads the private repositories that are added"
    )
    checked_at = models.DateTimeField(null=True, blank=True)
    next_check_at = models.DateTimeField(null=True, blank=True, db_index=True)
    check_error = models.CharField(max_length=500, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["site", "name"]
        constraints = [models.UniqueConstraint(fields=["site", "name"], name="one_row_per_organisation")]

    def __str__(self) -> str:
        return f"{self.name} on {self.get_site_display()}"


class RepositoryQuerySet(models.QuerySet["Repository"]):
    def visible_to(self, principal: Principal) -> Self:
        """The only rule of who may read what. Anonymous sees nothing."""
        if principal.sees_all:
            visible = self
        elif principal.user_id is None:
            return self.none()
        else:
            visible = self.filter(
                Q(visibility=Repository.Visibility.PUBLIC)
                | Q(owner_id=principal.user_id)
                | Q(pk__in=Repository.members.through.objects.filter(user_id=principal.user_id).values("repository_id"))
                | Q(
                    pk__in=Repository.groups.through.objects.filter(group__user=principal.user_id).values(
                        "repository_id"
                    )
                )
            )
        if principal.repository_ids is not None:
            visible = visible.filter(pk__in=principal.repository_ids)
        return visible

    def searchable(self) -> Self:
        """Repositories that have a published index."""
        return self.filter(current_index__isnull=False)


class Repository(models.Model):
    """A ref of a mirror, under a name people type: `pallets/flask`."""

    class Visibility(models.TextChoices):
        PUBLIC = "public", "everyone who can sign in"
        PRIVATE = "private", "its owner, and people and groups that are chosen"

    mirror = models.ForeignKey(Mirror, on_delete=models.PROTECT, related_name="repositories")
    # Not unique: a number behind a name would tell of a repository that its reader may not know of.
    name = models.CharField(max_length=200, db_index=True)
    ref = models.CharField(max_length=255, blank=True, help_text="Branch, tag or commit; empty is the default branch")
    visibility = models.CharField(max_length=8, choices=Visibility, default=Visibility.PUBLIC)
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL,
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="repositories",
    )
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, blank=True, related_name="member_repositories")
    groups = models.ManyToManyField("auth.Group", blank=True, related_name="readable_repositories")
    golden = models.BooleanField(default=False, help_text="Preferred in every search")
    golden_note = models.CharField(max_length=300, blank=True)
    description = models.TextField(blank=True)
    current_index = models.ForeignKey(
        "Index",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The last good build; searches use it until a newer one is ready",
    )
    checked_at = models.DateTimeField(null=True, blank=True, help_text="When the ref was last compared with its source")
    check_error = models.CharField(max_length=500, blank=True, help_text="Why that comparison failed the last time")
    commits_behind = models.PositiveIntegerField(default=0, help_text="Commits that the published index lacks")
    file_rules = models.TextField(
        blank=True, max_length=20_000, help_text="Patterns as in .gitignore: left out, with ! indexed anyway"
    )
    max_file_bytes = models.PositiveIntegerField(
        null=True, blank=True, help_text="Larger files are skipped; empty is MAX_FILE_BYTES"
    )
    webhook_secret = models.CharField(max_length=64, default=new_webhook_secret, editable=False)
    organisation = models.ForeignKey(
        Organisation, null=True, blank=True, on_delete=models.SET_NULL, related_name="repositories"
    )
    hosted_id = models.CharField(max_length=40, blank=True, help_text="Its number there, which renaming keeps")
    archived = models.BooleanField(default=False, help_text="Frozen at the hosting site, so not asked for new commits")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = RepositoryQuerySet.as_manager()

    class Meta:
        ordering = ["name"]
        verbose_name_plural = "repositories"
        constraints = [
            models.UniqueConstraint(
                fields=["organisation", "hosted_id"], condition=~Q(hosted_id=""), name="one_repository_per_hosted_one"
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def slug(self) -> str:
        return slugify(self.name.replace("/", "-")) or "repository"

    @property
    def file_limit(self) -> int:
        """Bytes above which a file is skipped."""
        return self.max_file_bytes or settings.MAX_FILE_BYTES

    @property
    def index_path(self) -> Path:
        """Holds `manifest.json` and the segments it names."""
        return Path(settings.DATA_DIR) / "indexes" / str(self.pk)


class GoldenSetQuerySet(models.QuerySet["GoldenSet"]):
    def visible_to(self, principal: Principal) -> Self:
        """Sets with a member that this principal reads; who may read nothing of a set does not learn of it."""
        members = GoldenSet.repositories.through.objects.filter(repository__in=Repository.objects.visible_to(principal))
        return self.filter(pk__in=members.values("goldenset_id"))


class GoldenSet(models.Model):
    """Repositories that a team lead put together under a name, so that people can ask all of them: `@set/payments`."""

    name = models.SlugField(max_length=60, unique=True, help_text="Typed as @set/NAME in front of a question")
    note = models.CharField(max_length=300, blank=True, help_text="What the set is for, shown where it is offered")
    topics = models.CharField(
        max_length=300,
        blank=True,
        help_text="Words or phrases, separated by commas: a question that has one of them prefers these repositories",
    )
    repositories = models.ManyToManyField(Repository, blank=True, related_name="golden_sets")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = GoldenSetQuerySet.as_manager()

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return f"@set/{self.name}"


class Index(models.Model):
    """One build of one commit. Progress counts things done and things known, never a guessed percentage."""

    class Status(models.TextChoices):
        QUEUED = "queued"
        BUILDING = "building"
        READY = "ready"
        FAILED = "failed"
        CANCELLED = "cancelled"
        EMPTY = "empty", "empty repository"

    class Step(models.TextChoices):
        FETCH = "fetch", "fetching"
        WALK = "walk", "listing files"
        CHUNK = "chunk", "parsing"
        EMBED = "embed", "embedding"
        DESCRIBE = "describe", "describing"
        PUBLISH = "publish", "publishing"

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="indexes")
    commit = models.CharField(max_length=64, blank=True, help_text="Empty until the ref is resolved")
    status = models.CharField(max_length=9, choices=Status, default=Status.QUEUED)
    rebuild = models.BooleanField(default=False, help_text="Parse every file again, whatever is published")
    step = models.CharField(max_length=8, choices=Step, blank=True)
    current_path = models.CharField(max_length=1000, blank=True)
    files_done = models.PositiveIntegerField(default=0)
    files_known = models.PositiveIntegerField(default=0)
    chunks_done = models.PositiveIntegerField(default=0, help_text="Embedded so far")
    chunks_known = models.PositiveIntegerField(default=0)
    descriptions_done = models.PositiveIntegerField(default=0)
    descriptions_known = models.PositiveIntegerField(default=0)
    chunks_per_second = models.FloatField(default=0)
    skips_of = models.ForeignKey(
        "self",
        null=True,
        blank=True,
        on_delete=models.SET_NULL,
        related_name="+",
        help_text="The build that listed all skipped files; later ones only change that list",
    )
    skipped = models.JSONField(default=dict, blank=True, help_text="Reason -> number of files")
    warnings = models.JSONField(default=list, blank=True, help_text="Fallbacks taken, as sentences")
    size_bytes = models.BigIntegerField(default=0)
    error = models.TextField(blank=True, help_text="What failed and what to do, as shown to people")
    created_at = models.DateTimeField(auto_now_add=True)
    started_at = models.DateTimeField(null=True, blank=True)
    lexical_at = models.DateTimeField(null=True, blank=True, help_text="Searchable by words since")
    vectors_at = models.DateTimeField(null=True, blank=True, help_text="Searchable by meaning since")
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-pk"]
        verbose_name_plural = "indexes"
        constraints = [
            models.UniqueConstraint(
                fields=["repository"],
                condition=Q(status__in=["queued", "building"]),
                name="one_build_per_repository",
            )
        ]

    def __str__(self) -> str:
        return f"{self.repository_id}@{self.commit[:10] or '?'} ({self.status})"

    @property
    def bytes_per_chunk(self) -> int | None:
        """What a chunk takes in the index files; None before there is one."""
        return round(self.size_bytes / self.chunks_done) if self.size_bytes and self.chunks_done else None

    @property
    def active(self) -> bool:
        return self.status in (self.Status.QUEUED, self.Status.BUILDING)

    @property
    def skip_list(self) -> models.QuerySet[SkippedFile]:
        """Tracked files that this build did not index."""
        return SkippedFile.objects.filter(index=self.skips_of_id or self.pk)

    @property
    def seconds_left(self) -> float | None:
        """Estimate from the measured embedding rate; None while nothing is known."""
        if self.chunks_per_second <= 0 or not self.chunks_known:
            return None
        return max(0.0, (self.chunks_known - self.chunks_done) / self.chunks_per_second)


class SkippedFile(models.Model):
    """A tracked file that is not indexed, and the reason a person can read."""

    index = models.ForeignKey(Index, on_delete=models.CASCADE, related_name="skipped_files")
    path = models.CharField(max_length=1000, help_text="Decoded for display, cut to length")
    reason = models.CharField(max_length=20)
    detail = models.CharField(max_length=300, blank=True)

    class Meta:
        ordering = ["path"]

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


class Job(models.Model):
    """A lease on one build, kept here whatever the broker does: brokers lose or repeat messages, rows do not."""

    class State(models.TextChoices):
        QUEUED = "queued"
        RUNNING = "running"
        DONE = "done"
        FAILED = "failed"
        PARKED = "parked", "parked: it ended its worker again and again"
        CANCELLED = "cancelled"

    class Queue(models.TextChoices):
        BUILDS = "builds"
        DESCRIPTIONS = "descriptions"

    class Priority(models.IntegerChoices):
        REFRESH = 0, "a round of refreshing"
        PUSH = 1, "a webhook"
        PERSON = 2, "a person"

    index = models.OneToOneField(Index, on_delete=models.CASCADE, related_name="job")
    state = models.CharField(max_length=9, choices=State, default=State.QUEUED)
    queue = models.CharField(max_length=12, choices=Queue, default=Queue.BUILDS)
    priority = models.PositiveSmallIntegerField(choices=Priority, default=Priority.PERSON, help_text="Who asked")
    due_at = models.DateTimeField(default=timezone.now, help_text="Its place in the queue: the earliest goes first")
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Since the build last got further")
    furthest = models.PositiveIntegerField(default=0, help_text="Chunks embedded or described when a worker last ended")
    holder = models.CharField(
        max_length=100, blank=True, help_text="host:pid:random of the worker that holds the lease"
    )
    leased_until = models.DateTimeField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    cancel_requested = models.BooleanField(default=False)
    again = models.BooleanField(default=False, help_text="Asked for once more while it ran: newer commits arrived")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        indexes = [models.Index(fields=["state", "queue", "due_at"], name="jobs_in_line")]

    def __str__(self) -> str:
        return f"job {self.pk} for index {self.index_id} ({self.state})"


class EmbeddingRange(models.Model):
    """Files of a running build that another worker may embed; see `sharing`."""

    index = models.ForeignKey(Index, on_delete=models.CASCADE, related_name="embedding_ranges")
    position = models.PositiveIntegerField(help_text="The worker that holds the build goes up, helpers go down")
    segment = models.CharField(max_length=60)
    first_file = models.PositiveIntegerField(help_text="Row in the segment")
    last_file = models.PositiveIntegerField(help_text="Row after the last one")
    holder = models.CharField(max_length=100, blank=True, help_text="host:pid:random of the helper that has it")
    leased_until = models.DateTimeField(null=True, blank=True)
    attempts = models.PositiveSmallIntegerField(default=0, help_text="Helpers that took it and did not finish")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["index", "position"], name="one_range_per_position")]

    def __str__(self) -> str:
        return f"files {self.first_file} to {self.last_file} of segment {self.segment}"


class WebhookDelivery(models.Model):
    """What a webhook was recognised by, so that it starts nothing a second time."""

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="deliveries")
    key = models.CharField(max_length=200)
    received_at = models.DateTimeField(auto_now_add=True, db_index=True)

    class Meta:
        verbose_name_plural = "webhook deliveries"
        constraints = [models.UniqueConstraint(fields=["repository", "key"], name="one_delivery_per_key")]

    def __str__(self) -> str:
        return self.key


class ChunkDescription(models.Model):
    """A model-written description, reused wherever the same content meets the same prompt and model."""

    key = models.CharField(max_length=64, primary_key=True, help_text="SHA-256 over every input of the prompt")
    text = models.TextField()
    model = models.CharField(max_length=200)
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.text[:80]


class LLMCall(models.Model):
    """The usage ledger: one row per request to a language model. No prompt and no answer is kept."""

    class Purpose(models.TextChoices):
        DESCRIBE = "describe"
        PLAN = "plan"
        RERANK = "rerank"
        ANSWER = "answer"
        SUMMARISE = "summarise"
        TITLE = "title"
        TEST = "test"
        JUDGE = "judge"

    purpose = models.CharField(max_length=10, choices=Purpose)
    model = models.CharField(max_length=200)
    repository = models.ForeignKey(Repository, null=True, blank=True, on_delete=models.SET_NULL)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, blank=True, on_delete=models.SET_NULL)
    prompt_tokens = models.PositiveIntegerField(default=0)
    completion_tokens = models.PositiveIntegerField(default=0)
    cost_usd = models.FloatField(default=0)
    milliseconds = models.PositiveIntegerField(default=0)
    error = models.CharField(max_length=100, blank=True, help_text="Exception class, empty when it worked")
    created_at = models.DateTimeField(auto_now_add=True, db_index=True)

    def __str__(self) -> str:
        return f"{self.purpose} by {self.model}"


class ChunkReview(models.Model):
    """One run of `judge_chunks`: what the automatic checks found, and what a model thinks of a sample."""

    repository = models.ForeignKey(Repository, on_delete=models.CASCADE, related_name="chunk_reviews")
    commit = models.CharField(max_length=64)
    files = models.PositiveIntegerField()
    chunks = models.PositiveIntegerField()
    problems = models.JSONField(default=dict, help_text="Check -> how often it failed")
    examples = models.JSONField(default=list, help_text="Places of problems: check, path, line, detail")
    model = models.CharField(max_length=200, blank=True)
    score = models.FloatField(null=True, blank=True, help_text="Mean of all marks, from 0 to 1")
    marked = models.JSONField(default=list, help_text="The sample: path, lines, symbol, marks from 1 to 5, remark")
    notice = models.CharField(max_length=500, blank=True, help_text="Why fewer were judged than asked for")
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"chunks of {self.repository} at {self.commit[:10]}"


class AuditQuerySet(models.QuerySet["AuditEvent"]):
    """Rows are added and read; nothing that the program offers changes or removes one."""

    def visible_to(self, principal: Principal) -> Self:
        """Events about repositories that `principal` reads, and those about none. Removed ones: superusers only."""
        if principal.sees_all:
            return self
        return self.filter(Q(repository_id=None) | Q(repository_id__in=Repository.objects.visible_to(principal)))

    def update(self, **fields: object) -> int:
        raise TypeError("the audit log is only added to")

    def delete(self) -> tuple[int, dict[str, int]]:
        raise TypeError("the audit log is only added to")


class AuditEvent(models.Model):
    """Who did what to what, written by `audit.record`. Names are kept as they were, so that rows outlive people."""

    actor_user_id = models.PositiveBigIntegerField(null=True, blank=True, help_text="Empty: the server's shell")
    actor = models.CharField(max_length=150, help_text="As the person was called")
    action = models.CharField(max_length=60, db_index=True, help_text="A verb and its object: `repository removed`")
    target = models.CharField(max_length=300)
    # Not a foreign key: removing a repository would change the rows that tell who removed it.
    repository_id = models.PositiveBigIntegerField(null=True, blank=True, db_index=True)
    detail = models.CharField(max_length=1000, blank=True)
    at = models.DateTimeField(auto_now_add=True, db_index=True)

    objects = AuditQuerySet.as_manager()

    class Meta:
        ordering = ["-pk"]

    def __str__(self) -> str:
        return f"{self.actor}: {self.action} {self.target}"

    def save(self, *args: Any, **kwargs: Any) -> None:  # Any: Django's own signature
        if not self._state.adding:
            raise TypeError("the audit log is only added to")
        super().save(*args, **kwargs)

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:  # Any: Django's own signature
        raise TypeError("the audit log is only added to")
