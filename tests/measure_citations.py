"""Do the citations that are shown open the right bytes, over hundreds of answers about real code?

`python -m tests.measure_citations [ANSWERS]` asks about the largest definitions of every repository that is indexed in
DATA_DIR, in turn, with a scripted model that cites all it is shown. A fifth of the questions goes to a repository made
of their files in other encodings and with other line ends, which is indexed first. What it asked is deleted at the end.
Every link is opened through the viewer; one that is wrong is printed, and the exit status is then 1.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import django

FILES_RE_ENCODED = 12
MOST_BYTES = 3_000


def main() -> int:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "assistant.settings")
    os.environ |= {"LLM_MODEL": "ollama/stub", "LLM_CONTEXT_TOKENS": "100000", "ALLOWED_HOSTS": "testserver"}
    django.setup()
    from django.contrib.auth.models import User

    from indexing import llm, registering
    from indexing.models import Repository
    from tests.assistant.cited_bytes import CitingModel, no_structured_reply

    model = CitingModel()
    llm.stream, llm.structured = model, no_structured_reply
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    repositories = list(Repository.objects.searchable().select_related("mirror").order_by("name"))
    user = User.objects.create_superuser("measures-citations")
    try:
        with tempfile.TemporaryDirectory() as folder:
            other = _re_encoded(repositories, Path(folder))
            try:
                return _measure(user, model, repositories, other, wanted)
            finally:
                registering.remove(other)
    finally:
        user.delete()


def _measure(user, model, repositories, other, wanted: int) -> int:
    from django.test import Client

    from assistant.models import Citation
    from tests.assistant.cited_bytes import answered, wrong_citations

    client = Client()
    client.force_login(user)
    asked = itertools.chain(
        itertools.islice(_questions([other]), wanted // 5), itertools.islice(_questions(repositories), wanted)
    )
    answers, links, wrong = 0, 0, []
    for question, repository in itertools.islice(asked, wanted):
        count, problems = wrong_citations(answered(user, question, repository), client, model)
        answers, links, wrong = answers + 1, links + count, wrong + problems
    print(*wrong, sep="\n")
    rows = Citation.objects.filter(message__conversation__owner=user, cited=True)
    print(f"{answers} answers about {len(repositories) + 1} repositories, {links} citations, {len(wrong)} wrong")
    print("encodings:", dict(Counter(rows.values_list("encoding", flat=True))))
    print("languages:", len(set(rows.values_list("language", flat=True))))
    return 1 if wrong or not answers else 0


def _questions(repositories) -> Iterator[tuple[str, object]]:
    """The largest definitions of each, in turn."""
    from search.index_cache import opened

    def names(repository) -> Iterator[str]:
        found = [
            segment.definition(int(row))
            for segment in opened(repository.index_path).segments
            for row in segment.definitions["end_line"].argsort()[::-1][:400]
        ]
        yield from dict.fromkeys(definition.name for definition in found if len(definition.name) > 3)

    lists = [names(repository) for repository in repositories]
    for round_ in itertools.zip_longest(*lists):
        for name, repository in zip(round_, repositories, strict=True):
            if name:
                yield f"How does {name} work?", repository


def _re_encoded(repositories, folder: Path):
    """A repository of small files of the others in each of the encodings, indexed."""
    from indexing.building import build_now
    from indexing.git_process import git
    from indexing.refreshing import repository_at
    from tests.factories import make_repo
    from tests.re_encoding import COMMENTS, re_encoded

    files: dict[str, str] = {}
    for repository in repositories:
        commit = repository.current_index.commit
        listed = git(repository.mirror.path, "ls-tree", "-r", "-l", "--full-tree", commit).stdout.decode().splitlines()
        for entry in listed:
            _, _, blob, size, path = entry.split(None, 4)
            if PurePosixPath(path).suffix in COMMENTS and 500 < int(size) < MOST_BYTES and '"' not in path:
                raw = git(repository.mirror.path, "cat-file", "blob", blob).stdout
                files[f"{repository.pk}/{path}"] = raw.decode("utf-8", "replace").replace("\r\n", "\n")
                break
        if len(files) == FILES_RE_ENCODED:
            break
    made = repository_at(make_repo(folder, dict(re_encoded(files)), name="re-encoded"), name="measure/re-encoded")
    build_now(made)
    made.refresh_from_db()
    return made


if __name__ == "__main__":
    sys.exit(main())
