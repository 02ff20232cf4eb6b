"""The team lead's view of what is indexed: which repositories, how far, what failed, and what models cost.

Rows of repositories that a person may not read are not here either; superusers see all. Builds, skips, jobs and
calls are records: they can be looked at, not changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from django import forms
from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Prefetch, Q, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from django.utils.timesince import timesince

from indexing import llm
from indexing.access import Principal
from indexing.audit import record
from indexing.building import request_build
from indexing.chunk_checks import CHECKS
from indexing.errors import IndexFormatError, IndexingError, LLMNotConfigured
from indexing.forms import AUTOMATIC, LoginFields
from indexing.git import allowed_source
from indexing.index_format import verify
from indexing.judging import MARKS
from indexing.llm_test import try_model
from indexing.models import (
    ChunkReview,
    Credential,
    GoldenSet,
    Index,
    Job,
    LLMCall,
    Mirror,
    Repository,
    SkippedFile,
    new_webhook_secret,
)
from indexing.refreshing import request_repair
from indexing.registering import register, remove, set_login
from indexing.repository_columns import COLUMNS, RepositoryColumns, with_standing
from indexing.sources import check_ref

Checked = TypeVar("Checked")
LOGIN_FIELDS = ["access_user", "access_token", "ssh_key"]


class AuditedAdmin(admin.ModelAdmin):
    """What staff add, change and delete here is in the audit log: names of fields, never their values."""

    def log_addition(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry:  # Any: Django's own signature
        record(request.user, f"{self.opts.verbose_name} added", obj)
        return super().log_addition(request, obj, message)

    def log_change(self, request: HttpRequest, obj: Any, message: Any) -> LogEntry:  # Any: Django's own signature
        record(request.user, f"{self.opts.verbose_name} changed", obj, _change_text(message))
        return super().log_change(request, obj, message)

    def log_deletions(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[LogEntry]:  # Any: any model
        for obj in queryset:
            record(request.user, f"{self.opts.verbose_name} removed", obj)
        return super().log_deletions(request, queryset)


def _change_text(message: Any) -> str:  # Any: Django's list of changes
    return LogEntry(change_message=json.dumps(message)).get_change_message() if isinstance(message, list) else message


class RecordAdmin(AuditedAdmin):
    """Rows that the program writes: visible, never edited. They go when what they belong to goes."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # Any: a row of any model
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:  # Any: a row of any model
        """Only together with its repository or person, so not from the pages of the records themselves."""
        match = request.resolver_match
        own_pages = f"{self.opts.app_label}_{self.opts.model_name}_"
        on_own_page = match is not None and (match.url_name or "").startswith(own_pages)
        return not on_own_page and super().has_delete_permission(request, obj)


class RepositoryForm(LoginFields, forms.ModelForm):
    source = forms.CharField(
        max_length=2000,
        label="Git URL or path",
        help_text="Such as https://github.com/pallets/flask, or a folder on this server below LOCAL_REPOSITORY_ROOTS",
    )

    class Meta:
        model = Repository
        fields = (
            *("name", "ref", "visibility", "golden", "golden_note", "description", "owner", "members", "groups"),
            *LOGIN_FIELDS,
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # Any: Django's own signature
        super().__init__(*args, **kwargs)
        if self.instance.pk:
            del self.fields["source"]
        elif "name" in self.fields:
            self.fields["name"].required = False
            self.fields["name"].help_text = "Empty: taken from the URL"
            visibility = self.fields["visibility"]
            visibility.required, visibility.initial = False, ""
            visibility.choices = [AUTOMATIC, *Repository.Visibility.choices]  # type: ignore[attr-defined]  # a ChoiceField
        for name in set(LOGIN_FIELDS) & set(self.fields):
            self.fields[name].help_text = "Write-only: replaces the login that is kept"

    def clean(self) -> dict[str, Any]:  # Any: Django's own signature
        data = super().clean()
        if "source" in data:
            try:
                data["source"] = allowed_source(data["source"], from_staff=True, secret=data["secret"])
            except IndexingError as error:
                self.add_error("source", str(error))
        elif data["secret"] is not None and self.instance.pk:
            try:
                data["secret"].check_fits(self.instance.mirror.url)
            except IndexingError as error:
                self.add_error(None, str(error))
        return data

    def clean_ref(self) -> str:
        return _or_invalid(lambda: check_ref(self.cleaned_data["ref"]))


def _or_invalid(check: Callable[[], Checked]) -> Checked:
    try:
        return check()
    except IndexingError as error:
        raise forms.ValidationError(str(error)) from error


@admin.register(Repository)
class RepositoryAdmin(AuditedAdmin, RepositoryColumns):
    form = RepositoryForm
    list_display = ("name", "golden", *COLUMNS)
    list_editable = ("golden",)
    list_filter = ("golden", "visibility", ("current_index", admin.EmptyFieldListFilter))
    search_fields = ("name", "mirror__url", "description")
    filter_horizontal = ("members", "groups")
    readonly_fields = ("mirror", *COLUMNS, "created_at")
    actions = ("reindex", "verify_files", "make_golden", "make_ordinary", "make_set", "renew_webhook_secrets")
    list_per_page = 50

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:  # Any: Django's own
        """The list's checkbox has no label of its own."""
        field = super().formfield_for_dbfield(db_field, request, **kwargs)
        if db_field.name == "golden" and field is not None:
            field.widget.attrs["aria-label"] = "Golden"
        return field

    def get_queryset(self, request: HttpRequest) -> QuerySet[Repository]:
        return with_standing(_visible(request))

    def get_fields(self, request: HttpRequest, obj: Repository | None = None) -> Any:  # Any: nested lists
        settings = ["name", "ref", "visibility", "golden", "golden_note", "description", "owner", "members", "groups"]
        settings += LOGIN_FIELDS if self.has_change_permission(request, obj) else []
        return ["source", *settings] if obj is None else [*settings, *self.get_readonly_fields(request, obj)]

    def get_readonly_fields(self, request: HttpRequest, obj: Repository | None = None) -> tuple[str, ...]:
        """Whoever may only look at a repository does not see its secret."""
        if obj is None:
            return ()
        return (*self.readonly_fields, *(["webhook"] if self.has_change_permission(request, obj) else []))

    @admin.display(description="webhook")
    def webhook(self, repository: Repository) -> SafeString:
        """For GitHub, GitLab and Gitea alike: push events, content type JSON."""
        return format_html(
            "{} with the secret <code>{}</code>", reverse("webhook", args=[repository.pk]), repository.webhook_secret
        )

    def save_model(self, request: HttpRequest, obj: Repository, form: Any, change: bool) -> None:  # Any: the form above
        secret = form.cleaned_data.get("secret")  # the list has a form without it
        if change:
            super().save_model(request, obj, form, change)
            if secret is not None:
                set_login(obj, secret)
                record(request.user, "login replaced", obj)
                request_build(obj, user=_user(request))
            return
        repository, new = register(
            form.cleaned_data["source"],
            owner=obj.owner,
            principal=_principal(request),
            name=obj.name,
            ref=obj.ref,
            visibility=obj.visibility,
            golden=obj.golden,
            secret=secret,
        )
        if new:
            repository.golden_note, repository.description = obj.golden_note, obj.description
            repository.save(update_fields=["golden_note", "description"])
        else:
            self.message_user(request, f"{repository} was known already and is indexed again.", messages.WARNING)
        obj.pk, obj.name, obj._state.adding = repository.pk, repository.name, False
        request_build(repository, user=_user(request))

    def delete_model(self, request: HttpRequest, obj: Repository) -> None:
        remove(obj)

    def delete_queryset(self, request: HttpRequest, queryset: QuerySet[Repository]) -> None:
        for repository in queryset:
            remove(repository)

    @admin.action(description="Index again", permissions=["change"])
    def reindex(self, request: HttpRequest, queryset: QuerySet[Repository]) -> None:
        for repository in queryset:
            request_build(repository, user=_user(request))
            record(request.user, "repository indexed again", repository)
        self.message_user(request, f"Indexing {len(queryset)} again; searches use the present indexes until then.")

    @admin.action(description="Verify the index files", permissions=["view"])
    def verify_files(self, request: HttpRequest, queryset: QuerySet[Repository]) -> None:
        """Every byte against its checksum; what is damaged is queued to be made anew."""
        indexed = [repository for repository in queryset if repository.current_index_id]
        damaged = [(repository, problem) for repository in indexed if (problem := _damage(repository))]
        for repository, problem in damaged:
            request_repair(repository)
            self.message_user(request, f"{repository}: {problem} It is made anew from its mirror.", messages.ERROR)
        if sound := len(indexed) - len(damaged):
            self.message_user(request, f"{sound} checked byte by byte: sound.")

    @admin.action(description="Make golden", permissions=["change"])
    def make_golden(self, request: HttpRequest, queryset: QuerySet[Repository]) -> None:
        self.message_user(request, f"{_set_golden(request, queryset, True)} made golden: preferred in every search.")

    @admin.action(description="Make not golden", permissions=["change"])
    def make_ordinary(self, request: HttpRequest, queryset: QuerySet[Repository]) -> None:
        self.message_user(request, f"{_set_golden(request, queryset, False)} made not golden.")

    @admin.action(description="Put together as a golden set", permissions=["change"])
    def make_set(self, request: HttpRequest, queryset: QuerySet[Repository]) -> HttpResponseRedirect:
        """The form of a new set with these repositories in it."""
        chosen = ",".join(str(repository.pk) for repository in queryset)
        return HttpResponseRedirect(f"{reverse('admin:indexing_goldenset_add')}?repositories={chosen}")

    @admin.action(description="Make new webhook secrets", permissions=["change"])
    def renew_webhook_secrets(self, request: HttpRequest, queryset: QuerySet[Repository]) -> None:
        for repository in queryset:
            repository.webhook_secret = new_webhook_secret()
            repository.save(update_fields=["webhook_secret"])
            record(request.user, "webhook secret renewed", repository)
        self.message_user(request, f"{len(queryset)} secrets changed; put them into the hosts' webhook settings.")


@admin.register(GoldenSet)
class GoldenSetAdmin(AuditedAdmin):
    """Only members that the looking person may read are shown and changed; the others stay in the set as they are."""

    list_display = ("__str__", "size", "topics", "note", "indexed", "stale")
    search_fields = ("name", "note", "topics")
    filter_horizontal = ("repositories",)
    actions = ("reindex_members", "make_members_golden")

    def get_queryset(self, request: HttpRequest) -> QuerySet[GoldenSet]:
        readable = Prefetch("repositories", queryset=_visible(request), to_attr="readable")
        return GoldenSet.objects.filter(
            Q(pk__in=GoldenSet.objects.visible_to(_principal(request)))
            | Q(pk__in=GoldenSet.objects.filter(repositories=None))
        ).prefetch_related(readable)

    def formfield_for_manytomany(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:  # Any: Django's own
        kwargs["queryset"] = _visible(request).order_by("name")
        return super().formfield_for_manytomany(db_field, request, **kwargs)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:  # Any: Django's own
        hidden = list(form.instance.repositories.exclude(pk__in=_visible(request)))
        super().save_related(request, form, formsets, change)
        form.instance.repositories.add(*hidden)

    @admin.action(description="Index their repositories again", permissions=["change"])
    def reindex_members(self, request: HttpRequest, queryset: QuerySet[GoldenSet]) -> None:
        members = _visible(request).filter(golden_sets__in=queryset).distinct()
        for repository in members:
            request_build(repository, user=_user(request))
            record(request.user, "repository indexed again", repository)
        self.message_user(request, f"Indexing {len(members)} again; searches use the present indexes until then.")

    @admin.action(description="Make their repositories golden", permissions=["change"])
    def make_members_golden(self, request: HttpRequest, queryset: QuerySet[GoldenSet]) -> None:
        members = _visible(request).filter(golden_sets__in=queryset).distinct()
        self.message_user(request, f"{_set_golden(request, members, True)} made golden: preferred in every search.")

    @admin.display(description="repositories")
    def size(self, row: GoldenSet) -> int:
        return len(_members(row))

    @admin.display(description="indexed")
    def indexed(self, row: GoldenSet) -> int:
        return sum(member.current_index_id is not None for member in _members(row))

    @admin.display(description="behind")
    def stale(self, row: GoldenSet) -> int:
        return sum(member.commits_behind > 0 for member in _members(row))


def _members(row: GoldenSet) -> Sequence[Repository]:
    return getattr(row, "readable", ())


def _damage(repository: Repository) -> str:
    """Empty when every checksum holds."""
    try:
        verify(repository.index_path)
    except IndexFormatError as error:
        return str(error)
    return ""


def _set_golden(request: HttpRequest, queryset: QuerySet[Repository], golden: bool) -> int:
    for repository in queryset:
        record(request.user, f"repository made {'golden' if golden else 'not golden'}", repository)
    return Repository.objects.filter(pk__in=[repository.pk for repository in queryset]).update(golden=golden)


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # the admin lets nobody else in
    return request.user


def _principal(request: HttpRequest) -> Principal:
    return Principal.of_user(request.user)


def _visible(request: HttpRequest) -> QuerySet[Repository]:
    return Repository.objects.visible_to(_principal(request))


@admin.register(Mirror)
class MirrorAdmin(RecordAdmin):
    list_display = ("url", "kind", "default_branch", "size_bytes", "fetched_at")
    search_fields = ("url",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Mirror]:
        return Mirror.objects.filter(repositories__in=_visible(request)).distinct()


@admin.register(Credential)
class CredentialAdmin(RecordAdmin):
    """Which logins are kept, never what they are. One goes when no repository needs it any more."""

    list_display = ("origin", "kind", "username", "key_fingerprint", "owner", "created_at")
    list_filter = ("kind",)
    search_fields = ("origin", "owner__username")
    list_select_related = ("owner",)
    fields = list_display

    def get_queryset(self, request: HttpRequest) -> QuerySet[Credential]:
        return Credential.objects.filter(mirrors__repositories__in=_visible(request)).distinct()

    @admin.display(description="fingerprint of the public key")
    def key_fingerprint(self, credential: Credential) -> str:
        return credential.fingerprint if credential.kind == Credential.Kind.KEY else ""


@admin.register(Index)
class IndexAdmin(RecordAdmin):
    list_display = (
        *("pk", "repository", "short_commit", "status", "step", "files", "chunks", "skipped_files_link"),
        *("warning_count", "size_bytes", "took", "created_at"),
    )
    list_filter = ("status", ("repository", admin.RelatedOnlyFieldListFilter))
    search_fields = ("repository__name", "commit")
    list_select_related = ("repository",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Index]:
        return Index.objects.filter(repository__in=_visible(request))

    @admin.display(description="commit")
    def short_commit(self, index: Index) -> str:
        return index.commit[:10]

    @admin.display(description="files")
    def files(self, index: Index) -> str:
        return f"{index.files_done} of {index.files_known}"

    @admin.display(description="chunks")
    def chunks(self, index: Index) -> str:
        return f"{index.chunks_done} of {index.chunks_known}"

    @admin.display(description="skipped")
    def skipped_files_link(self, index: Index) -> SafeString:
        return format_html(
            '<a href="../skippedfile/?index__id__exact={}">{}</a>',
            index.skips_of_id or index.pk,
            sum(index.skipped.values()),
        )

    @admin.display(description="warnings")
    def warning_count(self, index: Index) -> int:
        return len(index.warnings)

    @admin.display(description="took")
    def took(self, index: Index) -> str:
        if index.started_at is None or index.finished_at is None:
            return ""
        seconds = (index.finished_at - index.started_at).total_seconds()
        return f"{seconds:.0f} s" if seconds < 120 else timesince(index.started_at, index.finished_at)


@admin.register(SkippedFile)
class SkippedFileAdmin(RecordAdmin):
    list_display = ("path", "reason", "detail", "index")
    list_filter = ("reason",)
    search_fields = ("path",)
    list_select_related = ("index",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[SkippedFile]:
        return SkippedFile.objects.filter(index__repository__in=_visible(request))


@admin.register(Job)
class JobAdmin(RecordAdmin):
    list_display = (
        *("pk", "repository", "state", "queue", "priority", "attempts", "error", "holder", "heartbeat_at"),
        *("due_at", "created_at"),
    )
    list_filter = ("state", "queue", "priority")
    list_select_related = ("index__repository",)
    actions = ("retry",)
    ordering = ("-pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Job]:
        return Job.objects.filter(index__repository__in=_visible(request))

    def has_retry_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("indexing.change_repository"))

    @admin.action(description="Retry", permissions=["retry"])
    def retry(self, request: HttpRequest, queryset: QuerySet[Job]) -> None:
        """A new build goes on with what the failed one embedded."""
        over = [job for job in queryset if job.state in (Job.State.FAILED, Job.State.PARKED, Job.State.CANCELLED)]
        for job in over:
            request_build(job.index.repository, user=_user(request))
        self.message_user(request, f"{len(over)} builds were asked for again.")

    @admin.display(description="error")
    def error(self, job: Job) -> str:
        return job.index.error[:300]

    @admin.display(description="repository")
    def repository(self, job: Job) -> Repository:
        return job.index.repository


@admin.register(LLMCall)
class LLMCallAdmin(RecordAdmin):
    list_display = (
        *("created_at", "purpose", "model", "repository", "user", "prompt_tokens", "completion_tokens"),
        *("cost_usd", "milliseconds", "error"),
    )
    list_filter = ("purpose", "model", ("error", admin.EmptyFieldListFilter))
    date_hierarchy = "created_at"
    list_select_related = ("repository", "user")
    ordering = ("-pk",)
    fields = list_display

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        """Who asked when is as much theirs as what they asked."""
        return tuple(name for name in self.list_display if name != "user" or settings.STAFF_SEES_QUESTIONS)

    def get_fields(self, request: HttpRequest, obj: LLMCall | None = None) -> tuple[str, ...]:
        return self.get_list_display(request)

    def get_urls(self) -> list[Any]:  # Any: Django's own patterns
        return [path("test/", self.admin_site.admin_view(self.test_model), name="llm_test"), *super().get_urls()]

    def test_model(self, request: HttpRequest) -> HttpResponse:
        """What the set model answers to one question, how long it takes, or what to change."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        context: dict[str, Any] = {**self.admin_site.each_context(request), "title": "Test the language model"}
        try:
            context["place"] = llm.model_place()
            if request.method == "POST":
                context["outcome"] = try_model(user_id=_user(request).pk)
        except LLMNotConfigured as error:
            context["error"] = str(error)
        return render(request, "llm_test.html", context)

    def get_queryset(self, request: HttpRequest) -> QuerySet[LLMCall]:
        return LLMCall.objects.filter(Q(repository=None) | Q(repository__in=_visible(request)))


@admin.register(ChunkReview)
class ChunkReviewAdmin(RecordAdmin):
    list_display = ("created_at", "repository", "short_commit", "files", "chunks", "problem_count", "judged", "percent")
    list_filter = (("repository", admin.RelatedOnlyFieldListFilter),)
    list_select_related = ("repository",)
    fields = ("repository", "commit", "files", "chunks", "found", "places", "percent", "marks", "model", "notice")

    def get_queryset(self, request: HttpRequest) -> QuerySet[ChunkReview]:
        return ChunkReview.objects.filter(repository__in=_visible(request))

    @admin.display(description="commit")
    def short_commit(self, review: ChunkReview) -> str:
        return review.commit[:10]

    @admin.display(description="problems")
    def problem_count(self, review: ChunkReview) -> int:
        return sum(review.problems.values())

    @admin.display(description="judged")
    def judged(self, review: ChunkReview) -> int:
        return len(review.marked)

    @admin.display(description="score")
    def percent(self, review: ChunkReview) -> str:
        return "" if review.score is None else f"{100 * review.score:.0f} %"

    @admin.display(description="problems")
    def found(self, review: ChunkReview) -> SafeString:
        rows = ((count, CHECKS.get(check, check)) for check, count in review.problems.items())
        return format_html_join(mark_safe("<br>"), "{} × {}", rows)

    @admin.display(description="places")
    def places(self, review: ChunkReview) -> SafeString:
        rows = (
            (row["path"], row["line"], CHECKS.get(row["check"], row["check"]), row["detail"]) for row in review.examples
        )
        return format_html_join(mark_safe("<br>"), "{}:{} {} ({})", rows)

    @admin.display(description="marks")
    def marks(self, review: ChunkReview) -> SafeString:
        rows = (
            (row["path"], row["start_line"], row["end_line"], row["symbol"], _marks(row), row["remark"])
            for row in review.marked
        )
        return format_html_join(mark_safe("<br>"), "{}:{}-{} {} — {} {}", rows)


def _marks(row: dict[str, Any]) -> str:  # Any: JSON
    return ", ".join(f"{name} {row[name]}" for name in MARKS)
