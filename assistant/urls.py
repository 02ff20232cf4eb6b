"""Every address of the product. Code is addressed by ids and commits, never by names alone."""

from __future__ import annotations

from django.contrib import admin
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.views import LoginView
from django.urls import path

from assistant import health, sign_in

urlpatterns = [
    path("sign-in/", login_not_required(LoginView.as_view(template_name="sign_in.html")), name="sign_in"),
    path("sign-in/<str:token>/", sign_in.use_link, name="sign_in_link"),
    path("healthz", health.healthz, name="healthz"),
    path("admin/", admin.site.urls),
]
