"""Everything that indexing raises on purpose.

IndexingError                     base: its text is a whole sentence that may be shown to people
|-- GitError                      a Git command failed
|   |-- InvalidSource             URL, path or ref refused before Git ran
|   |-- InvalidLogin              a token or key that cannot be used or kept, or not for this address
|   |-- UnreachableSource         host did not answer, or answered "not found" or "authentication needed"
|   |-- NotARepository            the path or URL is not a Git repository
|   |-- UnknownRef                the ref does not exist in the repository
|   |-- EmptyRepository           there is no commit yet
|   `-- MissingObject             a blob or commit is not in the mirror
|-- IndexFormatError              index files that cannot be used
|   |-- DamagedIndex              a size or checksum differs
|   `-- UnsupportedFormat         written by another version of the format
|-- HostingError                  the API of a hosting site did not give what was asked for
|   `-- RateLimited               it allows no more requests until `reset_at`
|-- InvalidCursor                 a page was asked for that no page before it named
|-- EmbeddingError                the model cannot be loaded or did not answer
|-- VectorsUnavailable            Milvus does not answer, or lacks vectors of a published index
|-- BuildCancelled                a person stopped the build
|-- LeaseLost                     another worker holds this build now
`-- LLMError                      a language model call failed
    |-- LLMNotConfigured          no model is set
    |-- LLMRefused                401/403/404: retrying cannot help, a setting must change
    |-- LLMUnavailable            network, 429 or 5xx after the allowed retries, or a time-out
    `-- LLMBadReply               the reply does not fit the schema
"""

from __future__ import annotations

from datetime import datetime


class IndexingError(Exception):
    pass


class GitError(IndexingError):
    pass


class InvalidSource(GitError):
    pass


class InvalidLogin(GitError):
    pass


class UnreachableSource(GitError):
    pass


class NotARepository(GitError):
    pass


class UnknownRef(GitError):
    pass


class EmptyRepository(GitError):
    pass


class MissingObject(GitError):
    pass


class IndexFormatError(IndexingError):
    pass


class DamagedIndex(IndexFormatError):
    pass


class UnsupportedFormat(IndexFormatError):
    pass


class HostingError(IndexingError):
    pass


class RateLimited(HostingError):
    def __init__(self, sentence: str, reset_at: datetime) -> None:
        super().__init__(sentence)
        self.reset_at = reset_at


class InvalidCursor(IndexingError):
    pass


class VectorsUnavailable(IndexingError):
    pass


class EmbeddingError(IndexingError):
    pass


class BuildCancelled(IndexingError):
    pass


class LeaseLost(IndexingError):
    pass


class LLMError(IndexingError):
    pass


class LLMNotConfigured(LLMError):
    pass


class LLMRefused(LLMError):
    pass


class LLMUnavailable(LLMError):
    pass


class LLMBadReply(LLMError):
    pass
