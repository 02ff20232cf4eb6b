"""What a person narrows a question to, as words: `@pallets/flask @set/web path:src/flask path!:docs lang:python`.

Words in a question become a `Scope` and leave the question; a `Scope` becomes words again for the chips of the
composer. A name that its writer may not read is left in the question as it is: nobody learns that it exists. What
stands in a quoted phrase or a regular expression is part of it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from indexing.access import Principal
from indexing.languages import language_called
from indexing.models import Repository
from search import golden_sets
from search.grep import read_pattern
from search.results import Scope, ScopedSet

_TOKEN = re.compile(
    r"(?<!\S)(?:@(?P<name>[\w.-]+(?:/[\w.-]+)*)|(?P<key>path!?|lang):(?P<value>\S+))(?=[\s,;:?!]|$)[ \t]?"
)
MAX_TOKENS = 20


@dataclass(frozen=True, slots=True)
class ScopedQuestion:
    question: str
    scope: Scope


def read_question(text: str, tokens: Sequence[str], principal: Principal) -> ScopedQuestion:
    """`tokens` are the composer's chips. Names stay in the question's text where they carry meaning in a sentence."""
    typed = [] if read_pattern(text) else list(_TOKEN.finditer(text))[:MAX_TOKENS]
    found = list(_TOKEN.finditer(" ".join(tokens[:MAX_TOKENS]))) + typed
    names = {match["name"] for match in found if match["name"]}
    sets = _sets(names, principal)
    ids = _ids(names, principal) | {f"{golden_sets.PREFIX}{part.name}": list(part.repository_ids) for part in sets}
    scope = Scope(
        repository_ids=tuple(dict.fromkeys(pk for match in found for pk in ids.get(match["name"], ()))),
        path=_last(found, "path"),
        path_filter=_last(found, "path!"),
        languages=tuple(dict.fromkeys(language_called(match["value"]) for match in found if match["key"] == "lang")),
        sets=sets,
    )
    question = _TOKEN.sub(lambda match: "" if match["key"] or match["name"] in ids else match[0], text if typed else "")
    return ScopedQuestion(question.strip() or text.strip(), scope)


def scope_tokens(scope: Scope, principal: Principal) -> list[str]:
    """The words for a scope, without repositories that may not be read any more."""
    readable = (
        Repository.objects.visible_to(principal).filter(pk__in=scope.repository_ids) if scope.repository_ids else []
    )
    names = {repository.pk: repository.name for repository in readable}
    alive = golden_sets.members({part.name for part in scope.sets}, principal)
    of_sets = {pk for part in scope.sets for pk in part.repository_ids}
    tokens = [f"@{golden_sets.PREFIX}{part.name}" for part in scope.sets if part.name in alive]
    tokens += dict.fromkeys(f"@{names[pk]}" for pk in scope.repository_ids if pk in names and pk not in of_sets)
    tokens += [f"path:{scope.path}"] if scope.path else []
    tokens += [f"path!:{scope.path_filter}"] if scope.path_filter else []
    return tokens + [f"lang:{language}" for language in scope.languages]


def _sets(names: set[str], principal: Principal) -> tuple[ScopedSet, ...]:
    wanted = {name.removeprefix(golden_sets.PREFIX) for name in names if name.startswith(golden_sets.PREFIX)}
    return tuple(ScopedSet(name, ids) for name, ids in sorted(golden_sets.members(wanted, principal).items()))


def _ids(names: set[str], principal: Principal) -> dict[str, list[int]]:
    """All of a name: two people may each have added a repository that the other could not see."""
    ids: dict[str, list[int]] = {}
    if names:
        readable = Repository.objects.visible_to(principal).filter(name__in=names).order_by("pk")
        for name, pk in readable.values_list("name", "pk"):
            ids.setdefault(name, []).append(pk)
    return ids


def _last(found: Sequence[re.Match[str]], key: str) -> str:
    return next((match["value"] for match in reversed(found) if match["key"] == key), "")
