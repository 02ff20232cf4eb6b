"""`manage.py index_repository URL_OR_PATH`: index a repository in the foreground, or bring it up to date."""

from __future__ import annotations

import json
import math
import sys
import time
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from indexing.building import build_now
from indexing.errors import IndexingError, InvalidSource, NotARepository, UnknownRef
from indexing.index_format import Coverage
from indexing.index_writing import usable_manifest
from indexing.models import Index, Repository
from indexing.previewing import fetch_mirror, preview_files
from indexing.refreshing import add_from_shell
from indexing.walking import SkipReason

TERMINAL_COLUMNS = 100


class Command(BaseCommand):
    help = "Index a repository here and now, or update it. Exit status: 0 ok, 1 failed, 2 wrong use."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("source", metavar="URL_OR_PATH", help="a Git URL, or the folder of a Git repository")
        parser.add_argument("--name", default="", help="what people type, such as pallets/flask")
        parser.add_argument("--ref", default="", help="branch, tag or commit; the default branch without it")
        parser.add_argument("--dry-run", action="store_true", help="only say which files would be indexed")
        parser.add_argument("--json", action="store_true", help="one JSON document on standard output")

    def handle(self, **options: Any) -> None:  # Any: parsed arguments
        started = time.monotonic()
        try:
            repository, _ = add_from_shell(options["source"], name=options["name"], ref=options["ref"])
            if options["dry_run"]:
                self._print_preview(repository, as_json=options["json"])
                return
            index = build_now(repository, on_progress=self._progress)
        except (InvalidSource, NotARepository, UnknownRef) as error:
            raise CommandError(str(error), returncode=2) from error
        except IndexingError as error:
            raise CommandError(str(error)) from error
        finally:
            self._clear()
        document = _report(index, seconds=time.monotonic() - started)
        if options["json"]:
            self.stdout.write(json.dumps(document))
        else:
            self._print(document)

    def _print_preview(self, repository: Repository, *, as_json: bool) -> None:
        """Looks into every file, however long that takes: nobody waits for a page."""
        fetch_mirror(repository)
        preview = preview_files(
            repository, rules=repository.file_rules, max_file_bytes=repository.max_file_bytes, seconds=math.inf
        )
        if as_json:
            self.stdout.write(json.dumps({"repository": repository.name} | preview.as_json()))
            return
        self.stdout.write(f"{repository.name} at {preview.commit[:10]}: {preview.files} files would be indexed")
        for reason, files in preview.skipped.most_common():
            self.stdout.write(f"  skipped {files:6}  {SkipReason(reason).label}")
        for path, reason, detail in preview.skipped_files:
            self.stdout.write(f"  {path}: {SkipReason(reason).label}{f' ({detail})' if detail else ''}")

    def _progress(self, line: str) -> None:
        """On a terminal one line that changes; nothing into files and pipes."""
        if sys.stderr.isatty():
            self.stderr.write(f"\r{line[:TERMINAL_COLUMNS]:{TERMINAL_COLUMNS}}", ending="")
            self.stderr.flush()

    def _clear(self) -> None:
        if sys.stderr.isatty():
            self.stderr.write(f"\r{'':{TERMINAL_COLUMNS}}\r", ending="")

    def _print(self, document: dict[str, Any]) -> None:  # Any: JSON
        self.stdout.write(
            f"{document['repository']} at {document['commit'][:10] or 'no commit'}: {document['files']} files, "
            f"{document['chunks']} chunks in {document['seconds']} s ({document['status']})"
        )
        if document["bytes_per_chunk"]:
            self.stdout.write(f"  {document['bytes_per_chunk']:,} bytes of index a chunk")
        for reason, files in document["skipped"].items():
            self.stdout.write(f"  skipped {files:6}  {SkipReason(reason).label}")
        for sentence in document["warnings"]:
            self.stdout.write(f"  {sentence}")


def _report(index: Index, *, seconds: float) -> dict[str, Any]:  # Any: JSON
    manifest = usable_manifest(index.repository.index_path)
    segments = manifest.segments if manifest and manifest.index_id == index.pk else ()
    coverage = manifest.coverage if manifest else Coverage()
    return {
        "repository": index.repository.name,
        "repository_id": index.repository_id,
        "commit": index.commit,
        "status": index.status,
        "files": sum(segment.files for segment in segments),
        "chunks": sum(segment.chunks for segment in segments),
        "bytes_per_chunk": index.bytes_per_chunk,
        "skipped": dict(sorted(index.skipped.items())),
        "coverage": {
            "lexical": coverage.lexical,
            "vectors": coverage.vectors,
            "descriptions": coverage.descriptions,
        },
        "warnings": index.warnings,
        "seconds": round(seconds, 2),
    }
