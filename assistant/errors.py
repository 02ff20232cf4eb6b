"""Everything that the assistant raises on purpose.

AssistantError                    base: its text is a whole sentence that may be shown to people
|-- AlreadyAsked                  an idempotency key or form was used before, for something else
|-- InvalidCallback               an address that answers may not be sent to
|-- InvalidQuestion               empty or too long; `text` keeps what was typed
|-- SlackFailed                   Slack could not be reached, or refused a call
|   |-- SlackClosed               we may not write in that place (any more)
|   `-- SlackGone                 the message or the address for replies is not there any more
`-- SourceNotFound                nothing to show at this repository, commit, path or range
"""

from __future__ import annotations


class AssistantError(Exception):
    pass


class AlreadyAsked(AssistantError):
    pass


class InvalidCallback(AssistantError):
    pass


class InvalidQuestion(AssistantError):
    def __init__(self, sentence: str, text: str) -> None:
        super().__init__(sentence)
        self.text = text


class SourceNotFound(AssistantError):
    pass


class SlackFailed(AssistantError):
    pass


class SlackClosed(SlackFailed):
    pass


class SlackGone(SlackFailed):
    pass
