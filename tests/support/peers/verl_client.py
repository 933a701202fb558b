"""verl's reward worker with its discriminative model at our address (vLLM's and SGLang's wire format), and with our
reward function by its `naive` and its `remote` manager. Ray runs one local process for the last; nothing is a stand-in
but the addresses, which verl's own RewardModelManager would make by launching GPU servers.
"""

import asyncio
import json
import os
import sys

import numpy as np
import ray
import torch
from omegaconf import OmegaConf
from tensordict import TensorDict
from transformers import AutoTokenizer
from verl import DataProto
from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

url, model = sys.argv[1:3]
tokenizer = AutoTokenizer.from_pretrained(model)
PROMPT = [{"role": "user", "content": "Name a metal."}]
response = torch.tensor([tokenizer("Gold.<|im_end|>", add_special_tokens=False).input_ids])
prompt = torch.zeros((1, 3), dtype=torch.long)
fields = {
    "raw_prompt": PROMPT,
    "data_source": "metals",
    "reward_model": {"ground_truth": "Gold."},
    "extra_info": {"prompt": PROMPT},
}
non_tensors = {}
for name, value in fields.items():
    non_tensors[name] = np.empty(1, dtype=object)
    non_tensors[name][0] = value
data = DataProto(
    batch=TensorDict(
        {
            "prompts": prompt,
            "responses": response,
            "attention_mask": torch.ones((1, 3 + response.shape[1]), dtype=torch.long),
        },
        batch_size=1,
    ),
    non_tensor_batch=non_tensors,
)


def worker(manager: str, function: str | None, engine: str = "vllm") -> RewardLoopWorker:
    custom = {"path": None, "name": None, "reward_kwargs": {}}
    if function is not None:
        import assay_serving.trainers.verl as ours

        custom = {"path": ours.__file__, "name": function, "reward_kwargs": {"url": url}}
    reward = {
        "num_workers": 1,
        "custom_reward_function": custom,
        "reward_manager": {"source": "register", "name": manager},
        "reward_model": {"enable": True, "model_path": model, "rollout": {"name": engine}},
        "sandbox_fusion": None,
    }
    config = {"actor_rollout_ref": {"model": {"path": model, "tokenizer_path": None}}, "reward": reward}
    return RewardLoopWorker(OmegaConf.create(config), reward_router_address=url.removeprefix("http://"))


async def main() -> None:
    scored = {}
    for engine in ("vllm", "sglang"):
        [scored[engine]] = await worker("naive", None, engine).compute_score_batch(data)
    for manager, function in (
        ("naive", "compute_score"),
        ("naive", "compute_score_sync"),
        ("remote", "compute_score_sync"),
    ):
        [scored[f"{manager} {function}"]] = await worker(manager, function).compute_score_batch(data)
    print(json.dumps(scored))


os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
asyncio.set_event_loop(loop := asyncio.new_event_loop())
ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20)
try:
    loop.run_until_complete(main())
finally:
    ray.shutdown()
