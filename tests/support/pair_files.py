"""Files of preference pairs for tests, in TRL's explicit conversational form."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from pathlib import Path

from assay.conversation.message import response_turns
from assay.domain import PreferencePair
from assay.system.atomic_files import replacing


def write_pairs(path: str | Path, pairs: Iterable[PreferencePair]) -> int:
    """Write TRL's explicit conversational form, whole or not at all; gzip where the name ends in .gz. Returns rows."""
    path = Path(path)
    written = 0
    with (
        replacing(path) as temporary,
        gzip.open(temporary, "wt", encoding="utf-8")
        if path.suffix == ".gz"
        else temporary.open("w", encoding="utf-8") as stream,
    ):
        for pair in pairs:
            row = {
                "prompt": [message.to_dict() for message in pair.prompt],
                "chosen": [message.to_dict() for message in response_turns(pair.chosen)],
                "rejected": [message.to_dict() for message in response_turns(pair.rejected)],
                "comparison_id": pair.comparison_id,
                "source": pair.source,
                "category": pair.category,
                "margin": pair.margin,
            }
            stream.write(json.dumps(row, ensure_ascii=False) + "\n")
            written += 1
    return written
