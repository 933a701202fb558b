"""The server that people write first: FastAPI, one forward pass a request, in the route. A peer of `serving.py`.

`python plain_server.py MODEL PORT THREADS`: POST /get_reward {"query": [texts]} -> {"rewards": [...]}, the shape and
the behaviour of the reward server that trainers' examples ship: the texts of one request are one padded batch, and
the next request waits. Leaves out: anything of Assay.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request
from transformers import AutoModelForSequenceClassification, AutoTokenizer

MAX_LENGTH = 1024


def create(model_folder: str) -> FastAPI:
    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    tokenizer.padding_side = "right"
    model = AutoModelForSequenceClassification.from_pretrained(model_folder, dtype=torch.float32).eval()
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/get_reward")
    async def get_reward(request: Request) -> dict[str, Any]:
        texts = (await request.json())["query"]
        rows = tokenizer(
            texts, add_special_tokens=False, truncation=True, max_length=MAX_LENGTH, padding=True, return_tensors="pt"
        )
        with torch.inference_mode():
            rewards = model(**rows, use_cache=False).logits[:, 0].tolist()
        return {"rewards": rewards, "scores": rewards}

    return app


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[3]))
    uvicorn.run(create(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
