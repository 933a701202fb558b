"""Real preference pairs for the speed benchmarks: Anthropic HH test pairs of the shared data, drawn by a seed.

Leaves out: the data itself, which lies beside the repository ($ASSAY_SHARED_DATA, else ../shared/data).
"""

from __future__ import annotations

import gzip
import json
import os
import random
import sys
from pathlib import Path

from assay.domain import Message, PreferencePair

FILES = ("hh_helpful_base_test", "hh_harmless_base_test")


def data_folder() -> Path:
    """The folder of the shared data. Ends the script, saying so, where it is not there."""
    folder = Path(os.environ.get("ASSAY_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    if missing := [name for name in FILES if not (folder / f"{name}.jsonl.gz").is_file()]:
        sys.exit(f"no {folder / missing[0]}.jsonl.gz: set ASSAY_SHARED_DATA to the folder of the shared data")
    return folder


def hh_pairs(number: int, *, seed: int = 0) -> list[PreferencePair]:
    """`number` pairs of both files in random order. Ends the script, saying so, where the data is not there."""
    pairs = []
    for name in FILES:
        path = data_folder() / f"{name}.jsonl.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                row = json.loads(line)
                prompt = tuple(Message(m["role"], m["content"]) for m in row["prompt"])
                if row["chosen"] != row["rejected"]:
                    pairs.append(PreferencePair(prompt, row["chosen"], row["rejected"]))
    return random.Random(seed).sample(pairs, number)
