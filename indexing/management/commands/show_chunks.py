"""`manage.py show_chunks REPO PATH`: how one file is cut, and what is embedded for each piece."""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing import embedding
from indexing.chunking import Chunk, chunk_file
from indexing.context import EmbeddedTexts, embedded_texts
from indexing.errors import EmbeddingError, IndexingError
from indexing.git import BlobReader, blob_at, resolve
from indexing.masking import mask_secrets
from indexing.models import Repository
from indexing.walking import SkippedEntry, SourceFile, decode, source_of


class Command(BaseCommand):
    help = "Show the chunks of one file of a repository. Exit status: 0 ok, 1 failed, 2 wrong use."
    requires_migrations_checks = True

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("repository", metavar="REPO", help="name of a repository, such as pallets/flask")
        parser.add_argument("path", metavar="PATH", help="path of a file in it, from its root")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        source = _read(_repository(options["repository"]), options["path"])
        try:
            embedder = embedding.get_embedder()
        except EmbeddingError as error:
            raise CommandError(str(error)) from error
        chunked = chunk_file(source)
        if chunked.parsed.fallback:
            self.stderr.write(f"Cut by lines: {chunked.parsed.fallback}.")
        texts = embedded_texts(source, chunked, count_tokens=embedder.count_tokens, max_tokens=embedder.max_tokens)
        documents = [_document(source, chunk, text) for chunk, text in zip(chunked.chunks, texts, strict=True)]
        if options["json"]:
            self.stdout.write(json.dumps({"chunks": documents}, ensure_ascii=False))
            return
        for document in documents:
            self._print(document)

    def _print(self, document: dict[str, Any]) -> None:  # Any: JSON
        where = f"lines {document['start_line']}-{document['end_line']}, bytes {document['start_byte']}"
        self.stdout.write(
            f"== {document['role']} {document['kind']} {document['symbol']} ({where}-{document['end_byte']})"
        )
        for number, row in enumerate(document["embedded_rows"], 1):
            self.stdout.write(f"-- embedded {number} of {len(document['embedded_rows'])}")
            self.stdout.write(row)
        self.stdout.write("")


def _repository(name: str) -> Repository:
    repository = Repository.objects.select_related("mirror", "current_index").filter(name=name).first()
    if repository is None:
        known = ", ".join(Repository.objects.values_list("name", flat=True)[:20]) or "none yet"
        raise CommandError(f"No repository is called {name}. Known: {known}.", returncode=2)
    return repository


def _read(repository: Repository, path: str) -> SourceFile:
    """The file at the indexed commit, or at the newest one that the mirror has."""
    mirror = repository.mirror
    raw_path = os.fsencode(path)
    try:
        index = repository.current_index
        commit = index.commit if index else resolve(mirror.path, repository.ref, mirror.default_branch)
        blob_id = blob_at(mirror.path, commit, raw_path)
        if blob_id is None:
            raise CommandError(f"{repository.name} has no file {path} at commit {commit[:10]}.", returncode=2)
        with BlobReader(mirror.path) as blobs:
            source = source_of(raw_path, blob_id, blobs.read(blob_id))
    except IndexingError as error:
        raise CommandError(str(error)) from error
    if isinstance(source, SkippedEntry):
        detail = f": {source.detail}" if source.detail else ""
        raise CommandError(f"{path} is not indexed ({source.reason.label}{detail}).")
    return source


def _document(source: SourceFile, chunk: Chunk, texts: EmbeddedTexts) -> dict[str, Any]:  # Any: JSON
    return {
        "role": chunk.role,
        "kind": chunk.kind,
        "symbol": chunk.symbol,
        "start_byte": chunk.start_byte,
        "end_byte": chunk.end_byte,
        "start_line": chunk.start_line,
        "end_line": chunk.end_line,
        "text": mask_secrets(decode(source.raw[chunk.start_byte : chunk.end_byte], source.encoding)),
        "embedded_text": "\n".join(texts.rows),
        "embedded_rows": list(texts.rows),
        "description": texts.description,
    }
