"""The tool `search`: the documents of a file that match a query best, by BM25 (library bm25s, extra `search`).

Covers: an index made when the tool is opened, in memory. Leaves out: indexes on disk, embeddings, the network.

A file is JSON Lines of {"text": ..., "title": ...} (the title is optional), or plain text with a document a line.
"""

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

from annotated_types import Ge, Le

from assay.data.json_lines import Lines, RowError, parse_object
from assay.errors import BackendError, BadInputError
from assay.ids import rows_digest
from assay.settings import check_settings
from assay_serving.tools.tool import ToolError

EXTRA = "pip install 'assay[search]'"


@dataclass
class Search:
    """`file`: the documents. `top`: how many are shown at most, those without a word of the query never. `characters`:
    of a document that are shown."""

    name: ClassVar[str] = "search"
    description: ClassVar[str] = "Finds the documents that match a query best."
    parameters: ClassVar[Mapping[str, Any]] = {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "a few words"}},
        "required": ["query"],
    }
    repeatable: ClassVar[bool] = True

    file: str
    top: Annotated[int, Ge(1), Le(100)] = 3
    characters: Annotated[int, Ge(1)] = 1000

    def __post_init__(self) -> None:
        """Raises BadInputError naming file, row and field; BackendError without the library."""
        check_settings(self, "tools.search.")
        if importlib.util.find_spec("bm25s") is None:
            raise BackendError(f"the tool search needs the package bm25s: {EXTRA}")
        self.documents = _documents(Path(self.file))
        self.identity = rows_digest((document,) for document in self.documents)
        import bm25s

        self._index = bm25s.BM25()
        self._index.index(bm25s.tokenize(self.documents, show_progress=False), show_progress=False)

    def run(self, arguments: Mapping[str, Any]) -> str:
        """The documents, best first, each numbered. Raises ToolError where none has a word of the query."""
        import bm25s

        query = bm25s.tokenize([arguments["query"]], return_ids=False, show_progress=False)
        if not query[0]:
            raise ToolError("the query has no word to search for")
        count = min(self.top, len(self.documents))
        places, scores = self._index.retrieve(query, k=count, show_progress=False)
        matching = [int(index) for index, score in zip(places[0], scores[0], strict=True) if score > 0]
        if not matching:
            raise ToolError("no document has these words")
        return "\n".join(f"[{n}] {self.documents[i][: self.characters]}" for n, i in enumerate(matching, start=1))


def _documents(path: Path) -> list[str]:
    documents = []
    for number, line in Lines(path):
        if not line.startswith(b"{"):
            documents.append(line.decode("utf-8", "replace"))
            continue
        try:
            document = parse_object(line)
        except RowError as error:
            raise BadInputError(error.reason, file=path, row=number, field=error.field) from error
        text, title = document.get("text"), document.get("title", "")
        if not isinstance(text, str) or not isinstance(title, str):
            raise BadInputError("must be a text", file=path, row=number, field="text")
        documents.append(f"{title}: {text}" if title else text)
    if not documents:
        raise BadInputError("holds no document", file=path)
    return documents
