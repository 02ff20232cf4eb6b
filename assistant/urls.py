"""Every address of the product. Code is addressed by ids and commits, never by names alone."""

from __future__ import annotations

from django.conf import settings
from django.contrib import admin
from django.contrib.auth.views import LogoutView
from django.urls import include, path

from assistant import (
    account,
    api,
    code_views,
    command_line,
    dashboard,
    diagrams,
    evaluation_page,
    feedback_page,
    health,
    metrics_page,
    sign_in,
    slack,
    slack_account,
    views,
)
from indexing import webhooks

oidc_urls = []
if settings.OIDC_ISSUER:
    oidc_urls = [path("sign-in/", include("allauth.socialaccount.providers.openid_connect.urls"))]

urlpatterns = [
    path("", views.home, name="home"),
    path("home/progress/", views.home_progress, name="home_progress"),
    path("ask/", views.ask, name="ask"),
    path("c/", views.search_conversations, name="conversations"),
    path("c/<uuid:conversation_id>/", views.conversation, name="conversation"),
    path("c/<uuid:conversation_id>/ask/", views.ask, name="ask_follow_up"),
    path("c/<uuid:conversation_id>/rename/", views.rename_conversation, name="rename_conversation"),
    path("c/<uuid:conversation_id>/pin/", views.pin_conversation, name="pin_conversation"),
    path("c/<uuid:conversation_id>/delete/", views.delete_conversation, name="delete_conversation"),
    path("c/<uuid:conversation_id>/export.md", views.export_conversation, name="export_conversation"),
    path("c/<uuid:conversation_id>/export.json", views.export_conversation_json, name="export_conversation_json"),
    path("c/<uuid:conversation_id>/share/", views.share_conversation, name="share_conversation"),
    path("s/<slug:token>/", views.shared_conversation, name="shared"),
    path("m/<uuid:message_id>/", views.answer, name="answer"),
    path("m/<uuid:message_id>/events/", views.answer_events, name="answer_events"),
    path("m/<uuid:message_id>/stop/", views.stop_answer, name="stop_answer"),
    path("m/<uuid:message_id>/retry/", views.retry_answer, name="retry_answer"),
    path("m/<uuid:message_id>/continue/", views.continue_answer, name="continue_answer"),
    path("m/<uuid:message_id>/edit/", views.edit_question, name="edit_question"),
    path("m/<uuid:message_id>/feedback/", views.feedback, name="feedback"),
    path("m/<uuid:message_id>/copied/<int:number>/", views.citation_copied, name="citation_copied"),
    path("m/<uuid:message_id>/trace/", views.trace, name="trace"),
    path("m/<uuid:message_id>/trace.json", views.trace_json, name="trace_json"),
    path("r/<int:repository_id>/<slug:slug>/blob/<str:commit>", code_views.blob, name="blob"),
    path("r/<int:repository_id>/<slug:slug>/preview/<str:commit>", code_views.preview, name="preview"),
    path("r/<int:repository_id>/<slug:slug>/folder/<str:commit>", code_views.folder, name="folder"),
    path("r/<int:repository_id>/<slug:slug>/references/<str:commit>", code_views.symbol_references, name="references"),
    path("r/<int:repository_id>/<slug:slug>/changes/<str:commit>", code_views.changes, name="changes"),
    path("r/<int:repository_id>/<slug:slug>/similar/<str:commit>", code_views.similar_code, name="similar_code"),
    path("complete/", views.complete, name="complete"),
    path("dock/", views.dock, name="dock"),
    path("diagram/", diagrams.frame, name="diagram"),
    path("repositories/", include("indexing.urls")),
    path("webhooks/<int:repository_id>/", webhooks.receive, name="webhook"),
    path("search/", include("search.urls")),
    path("dashboard/", dashboard.dashboard, name="dashboard"),
    path("dashboard/feedback.csv", feedback_page.export_csv, name="feedback_csv"),
    path("dashboard/feedback.json", feedback_page.export_json, name="feedback_json"),
    path("evaluation/", evaluation_page.evaluation, name="evaluation"),
    path("evaluation/add/<uuid:message_id>/", feedback_page.add_question, name="add_evaluation_question"),
    path("account/tokens/", account.token_page, name="tokens"),
    path("account/tokens/<int:token_id>/revoke/", account.revoke_token, name="revoke_token"),
    path("account/slack/", slack_account.account_page, name="slack_account"),
    path("account/slack/<int:account_id>/unlink/", slack_account.unlink_account, name="unlink_slack_account"),
    path("slack/events/", slack.receive_event, name="slack_events"),
    path("slack/commands/", slack.receive_command, name="slack_commands"),
    path("slack/interactions/", slack.receive_interaction, name="slack_interactions"),
    path("sign-in/", views.SignIn.as_view(), name="sign_in"),
    *oidc_urls,
    path("sign-in/<str:token>/", sign_in.use_link, name="sign_in_link"),
    path("sign-out/", LogoutView.as_view(next_page="sign_in"), name="sign_out"),
    path("cli/codebase.py", command_line.download, name="command_line"),
    path("api/v1/", api.urls),
    path("healthz", health.healthz, name="healthz"),
    path("readyz", health.readyz, name="readyz"),
    path("metrics", metrics_page.metrics, name="metrics"),
    path("admin/", admin.site.urls),
]
