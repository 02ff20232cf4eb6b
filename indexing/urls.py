"""Pages of the repositories."""

from __future__ import annotations

from django.urls import path

from indexing import languages_page, organisation_views, reviews_page, views

urlpatterns = [
    path("", views.repositories, name="repositories"),
    path("add/", views.add_repository, name="add_repository"),
    path("probe/", views.probe, name="probe_repository"),
    path("languages/", languages_page.languages, name="languages"),
    path("chunks/", reviews_page.chunk_reviews, name="chunk_reviews"),
    path("chunks/<int:review_id>/", reviews_page.chunk_review, name="chunk_review"),
    path("organisations/", organisation_views.organisation_page, name="organisations"),
    path(
        "organisations/<int:organisation_id>/synchronise/",
        organisation_views.synchronise_organisation,
        name="synchronise_organisation",
    ),
    path(
        "organisations/<int:organisation_id>/forget/",
        organisation_views.forget_organisation,
        name="forget_organisation",
    ),
    path("<int:repository_id>/row/", views.repository_row, name="repository_row"),
    path("<int:repository_id>/skipped/", views.skipped_files, name="skipped_files"),
    path("<int:repository_id>/files/", views.repository_files, name="repository_files"),
    path("<int:repository_id>/update/", views.update_repository, name="update_repository"),
    path("<int:repository_id>/stop/", views.stop_build, name="stop_build"),
    path("<int:repository_id>/golden/", views.set_golden, name="set_golden"),
    path("<int:repository_id>/settings/", views.repository_settings, name="repository_settings"),
    path("<int:repository_id>/delete/", views.delete_repository, name="delete_repository"),
]
