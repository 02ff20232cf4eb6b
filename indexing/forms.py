"""The form that adds a repository. Refuses sources before Git sees them; connects to nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django import forms

from indexing.errors import InvalidSource
from indexing.git import allowed_source
from indexing.models import Repository
from indexing.sources import NO_SOURCE, Source, check_ref

if TYPE_CHECKING:
    from django.contrib.auth.models import User


class AddRepositoryForm(forms.Form):
    source = forms.CharField(max_length=2000, error_messages={"required": NO_SOURCE})
    ref = forms.CharField(max_length=255, required=False)
    visibility = forms.ChoiceField(choices=Repository.Visibility.choices, initial=Repository.Visibility.PUBLIC)
    golden = forms.BooleanField(required=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:  # Any: Django's own signature
        super().__init__(*args, **kwargs)
        self.user = user

    def clean_source(self) -> Source:
        try:
            return allowed_source(self.cleaned_data["source"], from_staff=self.user.is_staff)
        except InvalidSource as error:
            raise forms.ValidationError(str(error)) from error

    def clean_ref(self) -> str:
        ref: str = self.cleaned_data["ref"].strip()
        try:
            return check_ref(ref) if ref else ""
        except InvalidSource as error:
            raise forms.ValidationError(str(error)) from error

    def clean_golden(self) -> bool:
        """Golden repositories are preferred for everyone, so only staff choose them."""
        return bool(self.cleaned_data["golden"]) and self.user.is_staff
