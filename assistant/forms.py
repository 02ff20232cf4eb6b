"""The composer's form. The question itself is checked where it is stored, so that every entrance has one rule."""

from __future__ import annotations

import uuid

from django import forms

from assistant.conversations import MODES


class QuestionForm(forms.Form):
    request_id = forms.UUIDField(initial=uuid.uuid4)
    question = forms.CharField(required=False, strip=False)
    mode = forms.ChoiceField(choices=list(MODES.items()), initial="explain", required=False)
