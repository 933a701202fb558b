"""A hook of MkDocs: the marks of the paper index, such as [R], are text and not references to headings."""

from __future__ import annotations

import re
from typing import Any

_MARK = re.compile(r"(?<!\\)\[([ACFPRS](?:: \w+)?)\](?![(:])")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _MARK.sub(r"\\[\1\\]", markdown)
