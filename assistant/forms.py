"""The composer's form, and the form that makes a token.

A question itself is checked where it is stored, so that every entrance has one rule.
"""

from __future__ import annotations

import re
import uuid
from typing import Any

from django import forms
from django.contrib.auth.models import User

from assistant.conversations import MODES
from assistant.models import ApiToken
from indexing.access import Principal
from indexing.models import Repository

LIFETIMES = ((30, "30 days"), (90, "90 days"), (365, "one year"), (0, "no end"))


class QuestionForm(forms.Form):
    request_id = forms.UUIDField(initial=uuid.uuid4)
    question = forms.CharField(required=False, strip=False)
    mode = forms.ChoiceField(choices=list(MODES.items()), initial="explain", required=False)

    def clean_request_id(self) -> uuid.UUID:
        """Only random ones: those of the API and of Slack are made from names that others could guess and take."""
        request_id: uuid.UUID = self.cleaned_data["request_id"]
        if request_id.version != 4:
            raise forms.ValidationError("This is not an id that the form made.")
        return request_id


class TokenForm(forms.Form):
    """`repositories` is cleaned to a list, or to None when the token is not restricted."""

    name = forms.CharField(max_length=100)
    scopes = forms.MultipleChoiceField(choices=ApiToken.Scope.choices, initial=["read", "ask"])
    repositories = forms.CharField(required=False, max_length=20_000)
    days = forms.TypedChoiceField(choices=LIFETIMES, coerce=int, initial=90)
    service = forms.BooleanField(required=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:  # Any: Django's own signature
        super().__init__(*args, **kwargs)
        self.user = user
        if not user.is_staff:
            self.fields["scopes"].choices = [  # type: ignore[attr-defined]  # a MultipleChoiceField
                choice for choice in ApiToken.Scope.choices if choice[0] != ApiToken.Scope.ADMIN
            ]

    def clean_service(self) -> bool:
        return bool(self.cleaned_data["service"]) and self.user.is_staff

    def clean_repositories(self) -> list[Repository] | None:
        """Names that this person may not read are as unknown as those that do not exist."""
        names = set(re.split(r"[\s,]+", self.cleaned_data["repositories"].strip())) - {""}
        if not names:
            return None
        names = {name.removeprefix("@") for name in names}
        found = list(Repository.objects.visible_to(Principal.of_user(self.user)).filter(name__in=names))
        if unknown := sorted(names - {row.name for row in found}):
            raise forms.ValidationError(f"There is no repository {', '.join(unknown[:5])}.")
        return found
