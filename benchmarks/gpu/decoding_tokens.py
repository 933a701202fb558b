"""Generation on a GPU: tokens a second of our sampler in process, beside transformers' generate and vLLM.

Every row is as long as it may be: end tokens are forbidden to the peers, and of ours only tokens that were drawn count.
bfloat16 products, temperature 1, groups of eight to a prompt. vLLM: ASSAY_VLLM_PYTHON names its Python.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from contenders import Clock, Contender, Row, parser, run, token_rows, weights_of

MEASURES = ("policy_training/assay_policy_training/plugins/samplers", "platform/assay/models")
GROUP = 8


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    small = options.dry_run
    return {
        "model": "tiny" if small else options.model,
        "prompts": token_rows(
            2 if small else options.prompts, *((3, 8) if small else (100, 400)), 90 if small else 30000
        ),
        "max_new_tokens": 8 if small else options.max_new_tokens,
    }


def ours(settings: dict[str, Any]) -> Row:
    from assay.models.devices import has_fast_bfloat16, pick_device
    from assay_policy_training.core.policy import Policy
    from assay_policy_training.core.sampling import Sampling, group_uniforms
    from assay_policy_training.plugins.samplers.assembly import pad_left
    from assay_policy_training.plugins.samplers.transformers import TransformersSampler

    device, prompts = pick_device(), settings["prompts"]
    autocast = device.type == "cuda" and has_fast_bfloat16(device)
    policy = Policy(settings["model"], device=device, max_prompt_tokens=512, autocast=autocast)
    sampling = Sampling(group_size=GROUP, max_new_tokens=settings["max_new_tokens"], rows_at_once=GROUP * len(prompts))
    ids, seen = pad_left(prompts, int(policy.tokenizer.pad_token_id))
    uniforms = group_uniforms(range(len(prompts)), GROUP, sampling.max_new_tokens)
    sampler, clock = TransformersSampler(policy, sampling), Clock()
    sampler.generate(ids[:1], seen[:1], GROUP, uniforms[:GROUP])
    clock.start()
    _, drawn, _ = sampler.generate(ids, seen, GROUP, uniforms)
    tokens = int(drawn.sum())
    return clock.row(tokens, flops=2 * weights_of(policy.model) * tokens)


def generate(settings: dict[str, Any]) -> Row:
    torch = import_module("torch")
    from assay.models.loading import load_causal_lm, load_tokenizer

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = load_tokenizer(settings["model"])
    model: Any = load_causal_lm(settings["model"], tokenizer, dtype=torch.bfloat16, device=device)
    width, pad = max(map(len, settings["prompts"])), int(model.config.get_text_config().pad_token_id)
    rows = [row for row in settings["prompts"] for _ in range(GROUP)]
    ids = torch.tensor([[pad] * (width - len(row)) + row for row in rows], device=device)
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in rows], device=device)
    length, clock = settings["max_new_tokens"], Clock()
    options: dict[str, Any] = {"do_sample": True, "max_new_tokens": length, "min_new_tokens": length, "top_k": 0}
    with torch.no_grad():
        model.generate(input_ids=ids[:GROUP], attention_mask=mask[:GROUP], **options)
        clock.start()
        model.generate(input_ids=ids, attention_mask=mask, **options)
    return clock.row(len(rows) * length, flops=2 * weights_of(model) * len(rows) * length)


def vllm(settings: dict[str, Any]) -> Row:
    module = import_module("vllm")
    engine = module.LLM(model=settings["model"], dtype="bfloat16", max_model_len=512 + settings["max_new_tokens"])
    chosen = module.SamplingParams(n=GROUP, temperature=1.0, max_tokens=settings["max_new_tokens"], ignore_eos=True)
    prompts = [{"prompt_token_ids": row} for row in settings["prompts"]]
    engine.generate(prompts[:1], chosen, use_tqdm=False)
    clock = Clock()
    clock.start()
    outputs = engine.generate(prompts, chosen, use_tqdm=False)
    return clock.row(sum(len(o.token_ids) for each in outputs for o in each.outputs), version=module.__version__)


CONTENDERS = {
    "assay": Contender(ours),
    "transformers generate": Contender(generate),
    "vLLM": Contender(vllm, "ASSAY_VLLM_PYTHON"),
}


def main(arguments: list[str] | None = None) -> dict[str, list[Row]]:
    options = parser(__doc__)
    options.add_argument("--prompts", type=int, default=8, help="each with 8 rows")
    options.add_argument("--max-new-tokens", type=int, default=1024)
    return run(__file__, CONTENDERS, options, settings_of, MEASURES, arguments)


if __name__ == "__main__":
    main()
