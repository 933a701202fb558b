"""OpenRLHF's executor with two remote reward URLs.

The policy's engine is the one stand-in: it "samples" one response."""

import asyncio
import json
import sys
from types import SimpleNamespace

from openrlhf.utils.agent import SingleTurnAgentExecutor
from transformers import AutoTokenizer

url, model = sys.argv[1:3]
tokenizer = AutoTokenizer.from_pretrained(model)


class Policy:
    async def generate(self, ids, params, multi_modal_data=None):
        response = tokenizer("Gold.<|im_end|>", add_special_tokens=False).input_ids
        return SimpleNamespace(outputs=[SimpleNamespace(token_ids=response, finish_reason="stop", logprobs=None)])


prompt = tokenizer.apply_chat_template(
    [{"role": "user", "content": "Name a metal."}], tokenize=False, add_generation_prompt=True
)
sampling = SimpleNamespace(max_tokens=32, logprobs=None)
executor = SingleTurnAgentExecutor([f"{url}/get_reward", f"{url}/get_reward?model=other"])
output = asyncio.run(executor.execute(prompt, None, sampling, 512, tokenizer, Policy()))
print(json.dumps([output["reward"], output["scores"]]))
