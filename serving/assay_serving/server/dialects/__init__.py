"""The wire formats that trainers and other servers use, one module each: its bodies, replies and routes.

Covers: the registered dialects. What they share is in `shapes` (errors in the format's own form), `texts` (bodies) and
`scoring` (a failed item is an error). docs/serving/dialects.md lists what each one leaves out.
"""

from typing import Any

from assay.registry import Kind

_HERE = "assay_serving.server.dialects"

#: A member takes the server's `ScoringService` and returns a `fastapi.APIRouter`.
DIALECTS: Kind[Any] = Kind(
    "dialect",
    "A wire format of the scoring server: a function of the ScoringService that returns a fastapi.APIRouter.",
    members={
        "classify": f"{_HERE}.classify:classify_routes",
        "llama-factory": f"{_HERE}.llama_factory:llama_factory_routes",
        "nemo-gym": f"{_HERE}.nemo_gym:nemo_gym_routes",
        "openai-chat": f"{_HERE}.openai_chat:openai_chat_routes",
        "openrlhf": f"{_HERE}.openrlhf:openrlhf_routes",
        "sglang": f"{_HERE}.sglang:sglang_routes",
        "slime": f"{_HERE}.slime:slime_routes",
        "tokenize": f"{_HERE}.tokenize:tokenize_routes",
        "vllm": f"{_HERE}.vllm:vllm_routes",
    },
    requires=("__call__",),
    makes=("routes",),
    option="dialects",
)
