"""Runs in a vLLM environment, without Assay: raw logits of token rows from a one-label sequence classifier.

python vllm_child.py ROWS.json REWARDS.json
"""

import json
import sys
from pathlib import Path
from typing import Any


def main(request: Path, reply: Path) -> None:
    from vllm import LLM  # type: ignore[import-not-found, unused-ignore]  # of the other environment
    from vllm.config import PoolerConfig  # type: ignore[import-not-found, unused-ignore]

    payload: dict[str, Any] = json.loads(request.read_text())
    model = LLM(
        model=payload["model"],
        runner="pooling",
        convert="classify",
        dtype="float32",
        max_model_len=payload["max_length"],
        enforce_eager=True,
        enable_prefix_caching=False,
        # vLLM's default answer is sigmoid(logit): large rewards would all be 1.
        pooler_config=PoolerConfig(use_activation=False),
        kv_cache_memory_bytes=256 * 2**20,
    )
    outputs = model.classify([{"prompt_token_ids": row} for row in payload["rows"]])
    reply.write_text(json.dumps([float(output.outputs.probs[0]) for output in outputs]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
