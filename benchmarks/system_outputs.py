"""Outputs of real systems and a strong judge's preferences over them, with features: for `system_ranking.py`.

Covers: AlpacaEval 2's rows of the shared data ($ASSAY_SHARED_DATA, else ../shared/data), features of responses by text,
computed once and kept in a folder. Leaves out: the data itself, what is trained on the features.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import random
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
CHUNK = 256  #: texts computed between two writes
FILES = ("alpacaeval2_soft_preferences", "alpacaeval2_system_outputs", "alpacaeval2_leaderboard")


@dataclass(frozen=True)
class Output:
    """`preference`: the judge's probability that it beats the reference answer; NaN where it was not asked."""

    prompt_id: str
    prompt: str
    system: str
    text: str
    reference: str
    preference: float = float("nan")


@dataclass(frozen=True)
class SystemData:
    """`judged`: of the preference file; `ranked`: of the systems with a published win rate, on `ranked_prompts`."""

    judged: tuple[Output, ...]
    ranked: tuple[Output, ...]
    win_rates: dict[str, float]  #: length-controlled, percent

    @property
    def ranked_prompts(self) -> set[str]:
        return {one.prompt_id for one in self.ranked}


def load() -> SystemData:
    """Ends the script, saying so, where the data is not there."""
    preferences, outputs, board = (_rows(name) for name in FILES)
    references = {row["id"]: row["baseline"]["text"] for row in preferences}
    judged = [
        Output(row["id"], row["prompt"], one["system"], one["text"], references[row["id"]], float(one["preference"]))
        for row in preferences
        for one in row["responses"]
    ]
    ranked = [
        Output(row["id"], row["prompt"], one["system"], one["text"], references[row["id"]])
        for row in outputs
        for one in row["responses"]
    ]
    return SystemData(tuple(judged), tuple(ranked), {row["system"]: row["length_controlled_win_rate"] for row in board})


def _rows(name: str) -> list[dict[str, Any]]:
    folder = Path(os.environ.get("ASSAY_SHARED_DATA") or Path(__file__).resolve().parents[2] / "shared" / "data")
    path = folder / f"{name}.jsonl.gz"
    if not path.is_file():
        sys.exit(f"no {path}: set ASSAY_SHARED_DATA to the folder of the shared data")
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


class Embeddings:
    """MiniLM vectors [384] by text, in float16 files of a folder; bfloat16 where the processor computes in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._known: dict[str, npt.NDArray[np.float16]] = {}
        for path in sorted(folder.glob("*.npz")):
            with np.load(path) as part:
                self._known.update(zip(part["keys"].tolist(), part["vectors"], strict=True))

    def __contains__(self, text: str) -> bool:
        return _key(text) in self._known

    def of(self, texts: Sequence[str]) -> Floats:
        """[n, 384]; computes and stores those that are not known."""
        self.compute(texts)
        return np.stack([self._known[_key(text)] for text in texts]).astype(np.float64)

    def compute(self, texts: Iterable[str]) -> None:
        missing = list({_key(text): text for text in texts if text not in self}.items())
        if not missing:
            return
        import torch

        from assay_pipelines.embedding.encoder_loader import open_encoder

        encoder = open_encoder("minilm", device="cpu")
        self.folder.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(missing), CHUNK):
            part = missing[start : start + CHUNK]
            with torch.autocast("cpu", torch.bfloat16):
                vectors = encoder.encode([text for _, text in part]).astype(np.float16)
            keys = [key for key, _ in part]
            self._known.update(zip(keys, vectors, strict=True))
            path = self.folder / f"{time.time_ns()}.npz"
            with path.with_suffix(".tmp").open("wb") as stream:
                np.savez(stream, keys=np.array(keys), vectors=vectors)
            path.with_suffix(".tmp").rename(path)
            print(
                f"{start + len(part)} of {len(missing)} texts, {time.process_time():.0f} s", file=sys.stderr, flush=True
            )


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def texts_in_order(data: SystemData, *, seed: int = 0) -> list[str]:
    """Every text that is embedded: references and prompts, ranked outputs, then judged ones of other prompts by rounds
    of one system a prompt, so that what was computed so far is a fair sample."""
    held_out = data.ranked_prompts
    fixed = {one.prompt: None for one in data.judged} | {one.reference: None for one in data.judged}
    rounds = [one for one in data.judged if one.prompt_id not in held_out]
    rng = random.Random(seed)
    drawn = {id(one): rng.random() for one in rounds}
    by_prompt: dict[str, list[Output]] = {}
    for one in sorted(rounds, key=lambda one: drawn[id(one)]):
        by_prompt.setdefault(one.prompt_id, []).append(one)
    most = max(len(members) for members in by_prompt.values())
    later = [members[n] for n in range(most) for members in by_prompt.values() if n < len(members)]
    return [*fixed, *(one.text for one in data.ranked), *(one.text for one in later)]
