"""The chat: asking, streaming, stopping, retrying, rating, sharing; the trace beside it; conversations and sign-in.

Every row is fetched through what its reader may see, and what is not found or not allowed is the same 404.
Views that start an answer are async: an answer is a task of the web server's own event loop.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from functools import partial
from typing import Any, cast
from urllib.parse import urlencode

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.forms import AuthenticationForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView
from django.http import HttpRequest, HttpResponse, JsonResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_POST
from django_htmx.http import HttpResponseClientRedirect

from assistant import answering, citation_uses, completing, conversations, exporting, following, live_answer
from assistant.citations import Evidence
from assistant.context_processors import conversation_groups
from assistant.errors import AssistantError, InvalidQuestion
from assistant.exchanges import exchanges_of, page_url
from assistant.forms import QuestionForm
from assistant.models import Conversation, ConversationShare, Message
from assistant.suggesting import suggestions
from assistant.trace_pane import trace_pane
from indexing.access import Principal
from indexing.models import Repository
from indexing.status import statuses
from search.scoping import read_question, scope_tokens

HOME_REPOSITORIES = 50
TOO_MANY_TRIES = "That was tried too often. Wait {} min, or use a one-time link."

Context = dict[str, Any]  # Any: a template context


# --- asking


@require_GET
def home(request: HttpRequest) -> HttpResponse:
    initial = {"question": request.GET.get("question", ""), "request_id": uuid.uuid4(), "mode": "explain"}
    composer = _composer(QuestionForm(initial=initial), request.GET.getlist("scope"))
    return render(request, "home.html", _home(request) | composer)


@require_GET
def home_progress(request: HttpRequest) -> HttpResponse:
    return render(request, "home.html#progress", _home(request))


async def ask(request: HttpRequest, conversation_id: uuid.UUID | None = None) -> HttpResponse:
    """A new question: the page of its conversation, or with HTMX the exchange to append."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    accepted = await sync_to_async(_accept)(request, conversation_id)
    if isinstance(accepted, HttpResponse):
        return accepted
    answering.start_answer(accepted.pk)
    return await sync_to_async(_asked)(request, accepted)


def _accept(request: HttpRequest, conversation_id: uuid.UUID | None) -> Message | HttpResponse:
    """The stored message, or the form again with what was typed."""
    conversation = _conversation(request, conversation_id) if conversation_id else None
    form = QuestionForm(request.POST)
    if not form.is_valid():
        return _refuse(request, form, "The form was not complete. Ask again.", conversation)
    tokens, request_id = request.POST.getlist("scope"), form.cleaned_data["request_id"]
    asked = read_question(form.cleaned_data["question"], tokens, _principal(request))
    if conversations.is_used_up(request_id, _user(request), asked.question):
        request_id = uuid.uuid4()
    try:
        return conversations.start_message(
            _user(request),
            asked.question,
            request_id=request_id,
            conversation=conversation,
            mode=form.cleaned_data["mode"] or "explain",
            scope=asked.scope,
        )
    except AssistantError as error:
        return _refuse(request, form, str(error), conversation)


def _refuse(request: HttpRequest, form: QuestionForm, sentence: str, conversation: Conversation | None) -> HttpResponse:
    if _wants_fragment(request):
        response = render(request, "conversation.html#composer_error", {"error": sentence}, status=422)
        response["HX-Retarget"], response["HX-Reswap"] = "#composer-error", "innerHTML"
        return response
    form.add_error("question", sentence)
    composer = _composer(form, request.POST.getlist("scope"), conversation)
    if conversation is None:
        return render(request, "home.html", _home(request) | composer, status=422)
    return render(request, "conversation.html", _page(request, conversation) | composer, status=422)


def _asked(request: HttpRequest, message: Message) -> HttpResponse:
    if not _wants_fragment(request):
        return redirect(f"{reverse('conversation', args=[message.conversation_id])}#m-{message.pk}")
    (exchange,) = exchanges_of([message], _user(request))
    return render(request, "conversation.html#asked", {"exchange": exchange, "next_request_id": uuid.uuid4()})


# --- an answer


@require_GET
def answer(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    return _answer(request, _message(request, message_id))


async def answer_events(request: HttpRequest, message_id: uuid.UUID) -> HttpResponseBase:
    """The stream. `Last-Event-ID`, or `after` for a page that reconnects itself, resumes without repetition."""
    if request.method != "GET":
        return HttpResponse(status=405, headers={"Allow": "GET"})
    user = cast(User, await request.auser())
    message = await sync_to_async(_message)(request, message_id)
    after = _number(request.headers.get("Last-Event-ID") or request.GET.get("after", ""))

    def load_evidence(row: Message) -> Sequence[Evidence]:
        return conversations.evidence(row, Principal.of_user(user))

    return StreamingHttpResponse(
        live_answer.events(message, after, load_evidence, partial(following.is_signed_in, request.session, user)),
        content_type="text/event-stream",
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


@require_POST
def stop_answer(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    message = _message(request, message_id)
    conversations.request_stop(message)
    answering.signal_stop(message.pk)
    if _wants_fragment(request):
        return HttpResponse(status=204)
    return redirect("conversation", message.conversation_id)


async def retry_answer(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    message = await sync_to_async(_message)(request, message_id)
    message = await sync_to_async(conversations.retry)(message)
    answering.start_answer(message.pk)
    return await sync_to_async(_answer)(request, message)


async def continue_answer(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    """Let the model write the rest of an answer that broke off."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    message = await sync_to_async(_message)(request, message_id)
    message = await sync_to_async(conversations.go_on)(message)
    answering.start_answer(message.pk)
    return await sync_to_async(_answer)(request, message)


async def edit_question(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    """The last question in other words; the page is loaded anew, because its answer is."""
    if request.method != "POST":
        return HttpResponse(status=405, headers={"Allow": "POST"})
    edited = await sync_to_async(_edit)(request, message_id)
    if isinstance(edited, HttpResponse):
        return edited
    answering.start_answer(edited.pk)
    return redirect(f"{reverse('conversation', args=[edited.conversation_id])}#m-{edited.pk}")


def _edit(request: HttpRequest, message_id: uuid.UUID) -> Message | HttpResponse:
    """The queued message, or the page again with what was typed in its composer."""
    message = _message(request, message_id)
    typed = request.POST.get("question", "")
    try:
        return conversations.edit(message, typed)
    except InvalidQuestion as error:
        form = QuestionForm({"question": typed, "request_id": uuid.uuid4(), "mode": message.mode})
        return _refuse(request, form, str(error), message.conversation)


@require_POST
def feedback(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    message = _message(request, message_id)
    data = request.POST
    conversations.save_feedback(
        message,
        _user(request),
        helpful=data.get("helpful") == "1",
        reason=data.get("reason", ""),
        comment=data.get("comment", ""),
    )
    return _answer(request, message, "feedback")


@require_POST
def citation_copied(request: HttpRequest, message_id: uuid.UUID, number: int) -> HttpResponse:
    """Counted, nothing else; sent when somebody copies the passage in the viewer."""
    message = _message(request, message_id)
    rows = message.citations.filter(attempt=message.attempt, number=number, repository__in=_repositories(request))
    row = get_object_or_404(rows.select_related("repository"))
    assert row.repository is not None  # it is among those
    citation_uses.count(row.repository, "copied")
    return HttpResponse(status=204)


def _answer(request: HttpRequest, message: Message, part: str = "answer") -> HttpResponse:
    if not _wants_fragment(request):
        return redirect(f"{reverse('conversation', args=[message.conversation_id])}#a-{message.pk}")
    (exchange,) = exchanges_of([message], _user(request))
    return render(request, f"conversation.html#{part}", {"exchange": exchange})


# --- conversations


@require_GET
def conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    return render(request, "conversation.html", _page(request, _conversation(request, conversation_id)))


@require_GET
def search_conversations(request: HttpRequest) -> HttpResponse:
    query = request.GET.get("q", "").replace("\0", "").strip()  # PostgreSQL refuses it
    groups = conversation_groups(request, query)
    return render(request, "base.html#conversations", {"sidebar_conversations": groups, "conversation_query": query})


@require_POST
def rename_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    row = _conversation(request, conversation_id)
    conversations.rename(row, request.POST.get("title", ""))
    return redirect("conversation", row.pk)


@require_POST
def pin_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    row = _conversation(request, conversation_id)
    conversations.set_pinned(row, request.POST.get("pinned") == "1")
    return redirect("conversation", row.pk)


@require_POST
def delete_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    conversations.delete(_conversation(request, conversation_id))
    return redirect("home")


@require_GET
def export_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    row = _conversation(request, conversation_id)
    text = exporting.to_markdown(row, _principal(request))
    return HttpResponse(
        text,
        content_type="text/markdown; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="conversation-{row.pk}.md"'},
    )


@require_GET
def export_conversation_json(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    row = _conversation(request, conversation_id)
    return JsonResponse(
        exporting.to_json(row, _principal(request)),
        json_dumps_params={"indent": 1, "ensure_ascii": False},
        headers={"Content-Disposition": f'attachment; filename="conversation-{row.pk}.json"'},
    )


# --- sharing


@require_POST
def share_conversation(request: HttpRequest, conversation_id: uuid.UUID) -> HttpResponse:
    row = _conversation(request, conversation_id)
    if request.POST.get("shared") == "1":
        conversations.share(row)
    else:
        conversations.end_share(row)
    return redirect("conversation", row.pk)


@require_GET
@never_cache
def shared_conversation(request: HttpRequest, token: str) -> HttpResponse:
    """Somebody else's conversation, as far as its reader may read the code that it cites."""
    share = get_object_or_404(ConversationShare.objects.select_related("conversation__owner"), token=token)
    thread = list(share.conversation.messages.select_related("conversation").order_by("position"))
    exchanges = exchanges_of(thread, _user(request), link=page_url)
    return render(request, "shared.html", {"shared": share.conversation, "exchanges": exchanges})


# --- the pane beside the conversation


@require_GET
def trace(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    message = _message(request, message_id)
    return beside(request, message, "trace.html", trace_pane(message, _principal(request)), kind="trace")


@require_GET
def trace_json(request: HttpRequest, message_id: uuid.UUID) -> HttpResponse:
    message = _message(request, message_id)
    return JsonResponse(conversations.visible_trace(message, _principal(request)), json_dumps_params={"indent": 1})


def beside(
    request: HttpRequest, message: Message | None, template: str, pane: Context, kind: str = "code"
) -> HttpResponse:
    """A pane: as a fragment for HTMX, beside the conversation of its message, or without one as a page of its own."""
    if _wants_fragment(request):
        return render(request, f"{template}#pane", pane)
    if message is None:
        return render(request, template, pane)
    framed = {"pane": kind, "pane_template": f"{template}#pane"}
    return render(request, "conversation.html", _page(request, message.conversation) | pane | framed)


def cited_in(request: HttpRequest) -> Message | None:
    """The message whose evidence is being opened; None when the address names none of this person's."""
    try:
        message_id = uuid.UUID(request.GET.get("m", ""))
    except ValueError:
        return None
    mine = conversations.messages_visible_to(request.user)
    return mine.select_related("conversation").filter(pk=message_id).first()


# --- small pieces


@require_GET
def complete(request: HttpRequest) -> HttpResponse:
    typed, tokens = request.GET.get("typed", ""), request.GET.getlist("scope")
    return render(request, "_completion.html", {"found": completing.complete(typed, tokens, _principal(request))})


@require_GET
def dock(request: HttpRequest) -> HttpResponse:
    return render(request, "base.html#dock")


@method_decorator([login_not_required, never_cache], name="dispatch")
class SignIn(LoginView):
    template_name = "sign_in.html"
    redirect_authenticated_user = True

    def form_invalid(self, form: AuthenticationForm) -> HttpResponse:
        seconds = getattr(self.request, "sign_in_wait_seconds", 0)  # set by throttling.PasswordBackend
        if not seconds:
            return super().form_invalid(form)
        minutes = -(-seconds // 60)
        context = self.get_context_data(form=self.form_class(self.request), link_error=TOO_MANY_TRIES.format(minutes))
        return self.render_to_response(context, status=429, headers={"Retry-After": str(seconds)})

    def get(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:  # Any: Django's own signature
        """A fragment asked for after the session ended: the whole page goes to the form, and comes back after it."""
        if not _wants_fragment(request):
            return super().get(request, *args, **kwargs)
        page = request.htmx.current_url_abs_path or reverse("home")  # type: ignore[attr-defined]  # HtmxMiddleware
        return HttpResponseClientRedirect(f"{reverse('sign_in')}?{urlencode({'next': page})}")


# --- helpers


def _home(request: HttpRequest) -> Context:
    readable = _repositories(request).order_by("-golden", "name")
    rows = statuses(readable[:HOME_REPOSITORIES])
    searchable = [row.repository for row in rows if row.current]
    can_answer = searchable or [row.repository for row in rows]
    return {
        "repositories": rows,
        "can_answer": can_answer,
        "can_answer_total": _total(readable) if len(rows) == HOME_REPOSITORIES else len(can_answer),
        "active": [row for row in rows if row.active],
        "searchable": searchable,
        "questions": suggestions(searchable),
    }


def _total(readable: Any) -> int:  # Any: RepositoryQuerySet
    return int(readable.searchable().count() or readable.count())


def _page(request: HttpRequest, row: Conversation) -> Context:
    thread = list(row.messages.select_related("conversation").order_by("position"))
    tokens = scope_tokens(conversations.scope_of(thread[-1]), _principal(request)) if thread else []
    form = QuestionForm(initial={"request_id": uuid.uuid4(), "mode": thread[-1].mode if thread else "explain"})
    return {
        "conversation": row,
        "share_url": _share_url(request, row),
        "exchanges": exchanges_of(thread, _user(request)),
        "running": any(not message.finished for message in thread),
    } | _composer(form, tokens, row)


def _share_url(request: HttpRequest, row: Conversation) -> str:
    share = ConversationShare.objects.filter(conversation=row).first()
    return request.build_absolute_uri(reverse("shared", args=[share.token])) if share is not None else ""


def _composer(form: QuestionForm, tokens: Sequence[str], row: Conversation | None = None) -> Context:
    ask_url = reverse("ask_follow_up", args=[row.pk]) if row else reverse("ask")
    return {"form": form, "scope_tokens": tokens, "ask_url": ask_url}


def _conversation(request: HttpRequest, conversation_id: uuid.UUID) -> Conversation:
    return get_object_or_404(conversations.visible_to(request.user), pk=conversation_id)


def _message(request: HttpRequest, message_id: uuid.UUID) -> Message:
    mine = conversations.messages_visible_to(request.user)
    return get_object_or_404(mine.select_related("conversation"), pk=message_id)


def _repositories(request: HttpRequest) -> Any:  # Any: RepositoryQuerySet, whose select_related is untyped
    return Repository.objects.visible_to(_principal(request))


def _principal(request: HttpRequest) -> Principal:
    return Principal.of_user(request.user)


def _user(request: HttpRequest) -> User:
    assert isinstance(request.user, User)  # LoginRequiredMiddleware
    return request.user


def _wants_fragment(request: HttpRequest) -> bool:
    htmx = request.htmx  # type: ignore[attr-defined]  # set by HtmxMiddleware
    return bool(htmx) and not htmx.history_restore_request


def _number(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 12 else 0
