"""Scores by vLLM's pooling runner, in its own environment: run by `scoring.py`, which talks to it by lines.

Covers: a server of one process on standard input and output: a line is a JSON list of token-id lists, the answer a
line {"seconds": ..., "scores": [...]}. Leaves out: anything of Assay; this file imports none of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module


def main() -> None:
    """`vllm_scores.py MODEL DTYPE MAX_LENGTH`."""
    model, dtype, max_length = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # vLLM prints to standard output
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    vllm = import_module("vllm")
    torch = import_module("torch")
    options = {} if torch.cuda.is_available() else {"enforce_eager": True, "kv_cache_memory_bytes": 1 << 30}
    caching = os.environ.get("ASSAY_VLLM_PREFIX_CACHING")
    if caching is not None:
        options["enable_prefix_caching"] = caching == "1"
    engine = vllm.LLM(
        model=model,
        runner="pooling",
        convert="classify",
        dtype=dtype,
        max_model_len=max_length,
        disable_log_stats=True,
        pooler_config=import_module("vllm.config").PoolerConfig(use_activation=False),
        **options,
    )
    caches = getattr(getattr(engine.llm_engine, "vllm_config", None), "cache_config", None)
    ready = {"version": vllm.__version__, "prefix_caching": getattr(caches, "enable_prefix_caching", None)}
    print(json.dumps(ready), file=answers, flush=True)
    for line in sys.stdin:
        prompts = [{"prompt_token_ids": ids} for ids in json.loads(line)]
        engine.reset_prefix_cache()  # nothing of an earlier round is remembered
        started = time.perf_counter()
        outputs = engine.classify(prompts, use_tqdm=False)
        seconds = time.perf_counter() - started
        scores = [output.outputs.probs[0] for output in outputs]
        print(json.dumps({"seconds": seconds, "scores": scores}), file=answers, flush=True)


if __name__ == "__main__":
    main()
