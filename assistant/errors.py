"""Everything that the assistant raises on purpose.

AssistantError                    base: its text is a whole sentence that may be shown to people
|-- InvalidQuestion               empty or too long; `text` keeps what was typed
`-- SourceNotFound                nothing to show at this repository, commit, path or range
"""

from __future__ import annotations


class AssistantError(Exception):
    pass


class InvalidQuestion(AssistantError):
    def __init__(self, sentence: str, text: str) -> None:
        super().__init__(sentence)
        self.text = text


class SourceNotFound(AssistantError):
    pass
