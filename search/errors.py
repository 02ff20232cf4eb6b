"""Everything that search raises on purpose.

SearchError           base: its text is a whole sentence that may be shown to people
|-- EmptyQuestion     nothing was asked
`-- EvaluationError   annotations or corpora that cannot be used
"""


class SearchError(Exception):
    pass


class EmptyQuestion(SearchError):
    pass


class EvaluationError(SearchError):
    pass
