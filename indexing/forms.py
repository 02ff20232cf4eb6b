"""The forms that add a repository, and that change who reads it, how it is fetched and which files are indexed.

Refuses sources before Git sees them; connects to nothing. What is typed as a login is never shown again.
"""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet

from indexing.credentials import NO_KEY, Secret, can_keep, key_secret, token_secret
from indexing.errors import GitError, InvalidSource
from indexing.git import allowed_source
from indexing.models import Organisation, Repository
from indexing.sources import NO_SOURCE, check_ref

MAX_FILE_MEGABYTES = 50  # of one file, whatever a repository's settings say
AUTOMATIC = ("", "everyone, or with a login only you")


class HiddenText(forms.Textarea):
    """A text of several lines that is not sent back."""

    def format_value(self, value: Any) -> str:  # Any: Django's own signature
        return ""


class LoginFields(forms.Form):
    """Write-only: a form that is shown again shows none of it. `cleaned_data["secret"]` is a Secret or None."""

    access_user = forms.CharField(max_length=100, required=False)
    access_token = forms.CharField(max_length=4000, required=False, widget=forms.PasswordInput)
    ssh_key = forms.CharField(max_length=20_000, required=False, strip=False, widget=HiddenText)

    def clean(self) -> dict[str, Any]:  # Any: Django's own signature
        data = super().clean() or self.cleaned_data
        data["secret"] = self._secret(data.get("access_token", ""), data.get("ssh_key", "").strip())
        return data

    def _secret(self, token: str, key: str) -> Secret | None:
        if not token and not key:
            return None
        try:
            if not can_keep():
                raise InvalidSource(NO_KEY)
            if token and key:
                raise InvalidSource("Give an access token or an SSH key, not both.")
            return token_secret(token, self.cleaned_data.get("access_user", "")) if token else key_secret(key)
        except GitError as error:
            self.add_error("access_token" if token else "ssh_key", str(error))
        return None


class AddRepositoryForm(LoginFields):
    source = forms.CharField(max_length=2000, error_messages={"required": NO_SOURCE})
    ref = forms.CharField(max_length=255, required=False)
    visibility = forms.ChoiceField(choices=[AUTOMATIC, *Repository.Visibility.choices], required=False)
    golden = forms.BooleanField(required=False)

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:  # Any: Django's own signature
        super().__init__(*args, **kwargs)
        self.user = user

    def clean(self) -> dict[str, Any]:  # Any: Django's own signature
        """The source is checked last, because which addresses are allowed depends on the login."""
        data = super().clean()
        if "source" in data:
            try:
                data["source"] = allowed_source(data["source"], from_staff=self.user.is_staff, secret=data["secret"])
            except GitError as error:
                self.add_error("source", str(error))
        return data

    def clean_ref(self) -> str:
        ref: str = self.cleaned_data["ref"].strip()
        try:
            return check_ref(ref) if ref else ""
        except InvalidSource as error:
            raise forms.ValidationError(str(error)) from error

    def clean_golden(self) -> bool:
        """Golden repositories are preferred for everyone, so only staff choose them."""
        return bool(self.cleaned_data["golden"]) and self.user.is_staff


class FilesForm(forms.Form):
    """Which files of a repository are indexed: patterns as in `.gitignore`, and the largest size."""

    rules = forms.CharField(max_length=20_000, required=False, strip=False, widget=forms.Textarea)
    max_megabytes = forms.FloatField(
        min_value=0.001,
        max_value=MAX_FILE_MEGABYTES,
        required=False,
        error_messages={
            "max_value": f"Files above {MAX_FILE_MEGABYTES} MB are not indexed: they would fill the memory."
        },
    )

    def clean_rules(self) -> str:
        rules = "\n".join(line.rstrip() for line in self.cleaned_data["rules"].splitlines())
        return rules.strip("\n")

    @property
    def max_file_bytes(self) -> int | None:
        megabytes = self.cleaned_data["max_megabytes"]
        return round(megabytes * 1_000_000) if megabytes else None


class RepositorySettingsForm(LoginFields):
    """Who reads a repository, and how it is fetched. An editor chooses among all groups as staff, else among theirs."""

    visibility = forms.ChoiceField(choices=Repository.Visibility.choices)
    people = forms.CharField(max_length=20_000, required=False)
    groups = forms.ModelMultipleChoiceField(queryset=Group.objects.none(), required=False)
    login = forms.ChoiceField(choices=[("keep", "keep"), ("replace", "replace"), ("remove", "remove")], required=False)

    def __init__(self, *args: Any, editor: User, **kwargs: Any) -> None:  # Any: Django's own signature
        super().__init__(*args, **kwargs)
        self.fields["groups"].queryset = choosable_groups(editor)  # type: ignore[attr-defined]

    def clean_people(self) -> list[User]:
        try:
            return people_named(re.split(r"[\s,]+", self.cleaned_data["people"].strip()))
        except InvalidSource as error:
            raise forms.ValidationError(str(error)) from error


class OrganisationForm(forms.ModelForm):  # type: ignore[type-arg]  # generic for type checkers only
    """An organisation that is here already is changed by the same form."""

    class Meta:
        model = Organisation
        fields = ("site", "name", "include", "exclude", "with_archived", "groups")

    def clean(self) -> dict[str, Any]:  # Any: Django's own signature
        data = super().clean() or self.cleaned_data
        known = Organisation.objects.filter(site=data.get("site", ""), name=data.get("name", "")).first()
        if known is not None:
            self.instance = known
        return data


def choosable_groups(editor: User) -> QuerySet[Group]:
    groups = Group.objects.order_by("name")
    return groups if editor.is_staff else groups.filter(user=editor)


def people_named(names: list[str]) -> list[User]:
    """Raises InvalidSource for a name that nobody has."""
    wanted = {name.removeprefix("@") for name in names} - {""}
    found = list(User.objects.filter(username__in=wanted, is_active=True).order_by("username"))
    if unknown := sorted(wanted - {person.username for person in found}):
        raise InvalidSource(f"Nobody here is called {', '.join(unknown[:5])}.")
    return found
