"""Published forms of reward models, each against an independent reference written here.

The references are the publishers' scoring code where a public repository holds it (named at each), rewritten in a few
lines of PyTorch on transformers' own LlamaModel; checkpoints are small and random, in the published names and shapes.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from published_models import H, Tensors, rand, reference_states, tiny_state, write
from safetensors.torch import load_file, save_file

from assay.domain import Message
from assay.errors import AssayError, BadInputError, NotFoundError
from assay.models.adapters.kind import MODEL_ADAPTERS, adapter_of
from assay.score import Score, ScoreFailure
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer
from assay_serving.scorer import ScoreItem

TURNS = (
    (Message("user", "Name a metal."),),
    (Message("user", "Hi"), Message("assistant", "Hello"), Message("user", "?")),
)
ANSWERS = ("Gold.", "Glass is not a metal, but silver is.\nSo is tin.")
ITEMS = [ScoreItem(prompt, answer) for prompt in TURNS for answer in ANSWERS]
Head = Callable[[torch.Tensor], torch.Tensor]


class Runs:
    """Its pickle calls a function when it is read."""

    def __reduce__(self) -> Any:
        return pytest.fail, ("code of a checkpoint was run",)


def chat(folder: Path, item: ScoreItem) -> list[int]:
    """As publishers do: the chat template of the tokenizer, as token ids."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    turns = [{"role": m.role, "content": m.text} for m in item.prompt]
    answer = [{"role": "assistant", "content": str(item.response)}]
    text = tokenizer.apply_chat_template([*turns, *answer], tokenize=False)
    return list(tokenizer(text, add_special_tokens=False)["input_ids"])


def scores(folder: Path, items: list[ScoreItem] = ITEMS, **options: Any) -> list[Score]:
    scorer = load_scorer(ModelConfig(str(folder), device="cpu", **options))
    results = scorer.score(items)
    alone = [scorer.score([item])[0] for item in items]
    assert all(isinstance(result, Score) for result in results), results
    for result, single in zip(results, alone, strict=True):
        assert isinstance(result, Score)
        assert isinstance(single, Score)
        assert result.reward == pytest.approx(single.reward, abs=1e-5)
    return results  # type: ignore[return-value]


def agree(folder: Path, reference: Callable[[ScoreItem], float], form: str, **options: Any) -> list[Score]:
    """Every item's reward is the reference's to 1e-5, and the form is found from the files alone."""
    found = adapter_of(str(folder), options.get("adapter"))
    assert found is not None
    assert found[0] == form
    results = scores(folder, **options)
    expected = [reference(item) for item in ITEMS]
    assert [result.reward for result in results] == pytest.approx(expected, abs=1e-5)
    assert len({round(value, 4) for value in expected}) > 1  # the texts differ
    return results


def on_last(folder: Path, head: Head, ids_of: Callable[[Path, ScoreItem], list[int]] = chat, **how: Any) -> Any:
    """The reference of a head on the last token's hidden state."""
    return lambda item: float(head(reference_states(folder, ids_of(folder, item), **how)[-1]))


# --- one position, a head of its own -----------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [False, True])
def test_openrlhf(tmp_path: Path, normalised: bool) -> None:
    """openrlhf/models/model.py: the value head at the last token, (r - mean) / std where normalize_reward is set."""
    head = rand(1, H)
    folder = write(
        tmp_path / "rm",
        tiny_state() | {"value_head.weight": head},
        architecture="RewardModel",
        config={"mean": 0.5, "std": 2.0, "normalize_reward": normalised, "value_head_prefix": "value_head"},
    )
    mean, std = (0.5, 2.0) if normalised else (0.0, 1.0)
    agree(folder, on_last(folder, lambda h: (head @ h - mean) / std), "openrlhf")


@pytest.mark.parametrize("form", ["inf-orm", "qwen-math-rm"])
def test_two_layers(tmp_path: Path, form: str) -> None:
    """rewardbench/models/inform.py, and Qwen2.5-Math-RM (its card has a system turn): Linear, ReLU, Linear."""
    w0, b0, w2, b2 = rand(H, H), rand(H, seed=1), rand(1, H, seed=2), rand(1, seed=3)
    layers = {"score.0.weight": w0, "score.0.bias": b0, "score.2.weight": w2, "score.2.bias": b2}
    qwen = form == "qwen-math-rm"
    architecture = "Qwen2ForRewardModel" if qwen else "INFORMForSequenceClassification"
    folder = write(tmp_path / "rm", tiny_state() | layers, architecture=architecture)

    def ids_of(folder: Path, item: ScoreItem) -> list[int]:
        system = Message("system", "Please reason step by step, and put your final answer within \\boxed{}.")
        return chat(folder, replace(item, prompt=(system, *item.prompt)) if qwen else item)

    agree(folder, on_last(folder, lambda h: w2 @ F.relu(w0 @ h + b0) + b2, ids_of), form)


def test_grm(tmp_path: Path) -> None:
    """rewardbench/models/grm.py: ValueHead of one hidden layer; the language head lies beside it and is not read."""
    w0, b0, w2, b2 = rand(32, H), rand(32, seed=1), rand(1, 32, seed=2), rand(1, seed=3)
    head = {f"v_head.summary.{n}": t for n, t in {"0.weight": w0, "0.bias": b0, "2.weight": w2, "2.bias": b2}.items()}
    folder = write(
        tmp_path / "rm",
        tiny_state() | head | {"lm_head.weight": rand(259, H)},
        architecture="LlamaForCausalLM",
        config={"vhead_layer_type": "mlp", "vhead_num_neurons": 32},
    )
    agree(folder, on_last(folder, lambda h: w2 @ F.relu(w0 @ h + b0) + b2), "grm")


def test_ultrarm_and_eurus(tmp_path: Path) -> None:
    """rewardbench/models/openbmb.py and Eurus' own class: regression_head at the last token, their own prompts."""
    head = rand(1, H)
    prompts = {
        "ultrarm": ("LlamaRewardModel", "Human: {}\nAssistant: {}"),
        "eurus": ("EurusRewardModel", "[INST] {} [\\INST] {}"),
    }
    item = ITEMS[1]
    for form, (architecture, prompt) in prompts.items():
        folder = write(tmp_path / form, tiny_state() | {"regression_head.weight": head}, architecture=architecture)
        found = adapter_of(str(folder))
        assert found is not None
        assert found[0] == form
        from transformers import AutoTokenizer

        text = prompt.format(item.prompt[0].text, item.response)
        ids = AutoTokenizer.from_pretrained(folder)(text, add_special_tokens=False)["input_ids"]
        expected = float(head @ reference_states(folder, list(ids))[-1])
        assert scores(folder, [item])[0].reward == pytest.approx(expected, abs=1e-5)


def test_internlm2(tmp_path: Path) -> None:
    """InternLM2's modeling code (`get_score`, attention's rearrange of wqkv): a Llama under other names, read at the
    reward token after the conversation."""
    from transformers import LlamaConfig, LlamaModel

    stock, tensors = tiny_state(), {}
    names = {
        "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1", "mlp.up_proj": "feed_forward.w3",
        "mlp.down_proj": "feed_forward.w2", "input_layernorm": "attention_norm",
        "post_attention_layernorm": "ffn_norm", "embed_tokens": "tok_embeddings",
    }  # fmt: skip
    for name, tensor in stock.items():
        if "q_proj" in name:
            layer = name.split("self_attn")[0]
            q = tensor.view(2, 2, 16, H)  # 2 key heads of 2 query heads each, 16 wide
            k, v = (stock[name.replace("q_proj", part)].view(2, 1, 16, H) for part in ("k_proj", "v_proj"))
            tensors[f"{layer}attention.wqkv.weight"] = torch.cat([q, k, v], 1).reshape(-1, H)
        elif "k_proj" not in name and "v_proj" not in name:
            for old, new in names.items():
                name = name.replace(old, new)
            tensors[name] = tensor
    head = rand(1, H)
    code = {"AutoModel": "modeling_internlm2.InternLM2ForRewardModel", "AutoConfig": "c.InternLM2Config"}
    folder = write(
        tmp_path / "rm",
        tensors | {"v_head.weight": head},
        architecture="InternLM2ForRewardModel",
        config={
            "model_type": "internlm2",
            "auto_map": code,
            "reward_token_id": 7,
            "bias": False,
            "rope_theta": 1_000_000,
            "rope_scaling": {"type": "dynamic", "factor": 1.0},
            "attn_implementation": "eager",
        },
        drop=("rope_parameters",),
    )
    config = json.loads((folder / "config.json").read_text())
    foreign = ("architectures", "auto_map", "model_type", "rope_scaling", "rope_theta", "attn_implementation")
    keep = {k: v for k, v in config.items() if k not in foreign}
    model: Any = LlamaModel(LlamaConfig(**keep, rope_parameters={"rope_type": "default", "rope_theta": 1_000_000.0}))
    model.eval()
    model.load_state_dict({n.removeprefix("model."): t for n, t in stock.items()})

    def reference(item: ScoreItem) -> float:
        with torch.no_grad():
            states = model(input_ids=torch.tensor([[*chat(folder, item), 7]])).last_hidden_state[0]
        return float(head @ states[-1])

    results = agree(folder, reference, "internlm2")
    assert results[0].tokens == len(chat(folder, ITEMS[0])) + 1


def test_starling(tmp_path: Path) -> None:
    """Starling-RM's card (GPTRewardModel): v_head at the response's end of text; `transformer` for `model`."""
    head = rand(1, H)
    renamed = {n.replace("model.", "transformer.", 1): t for n, t in tiny_state().items()}
    folder = write(tmp_path / "rm", renamed | {"v_head.weight": head}, architecture="LlamaForSequenceClassification")
    item = ITEMS[0]
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    eos = tokenizer.eos_token
    ids = list(
        tokenizer(f"{tokenizer.bos_token}[INST] {item.prompt[0].text} {eos} [/INST] {item.response}{eos}")["input_ids"]
    )
    states = reference_states(folder, ids, lambda n: n.replace("transformer.", "model.") if "v_head" not in n else None)
    assert scores(folder, [item])[0].reward == pytest.approx(float(head @ states[-1]), abs=1e-5)


@pytest.mark.parametrize("kind", ["reward", "cost"])
def test_beaver(tmp_path: Path, kind: str) -> None:
    """rewardbench/models/beaver.py: score_head with bias; rewards less the mean over std, costs over std."""
    from transformers import AutoTokenizer

    head, bias = rand(1, H), rand(1, seed=1)
    tensors = {"score_head.weight": head, "score_head.bias": bias}
    normaliser = {"normalizer.mean": torch.ones(1), "normalizer.var": torch.ones(1), "normalizer.count": torch.ones(1)}
    folder = write(
        tmp_path / "rm",
        tiny_state() | tensors | normaliser,
        architecture="LlamaForScore",
        config={"score_type": kind, "do_normalize": True, "mean": [0.5], "var": [4.0], "bias": True},
    )
    item, tokenizer = ITEMS[0], AutoTokenizer.from_pretrained(folder)
    text = f"BEGINNING OF CONVERSATION: USER: {item.prompt[0].text} ASSISTANT:{item.response}{tokenizer.eos_token}"
    raw = float(head @ reference_states(folder, list(tokenizer(text)["input_ids"]))[-1] + bias)
    expected = (raw - (0.5 if kind == "reward" else 0.0)) / (2.0 + 1e-8)
    assert scores(folder, [item])[0].reward == pytest.approx(expected, abs=1e-5)


def test_nemotron(tmp_path: Path) -> None:
    """The card's `generate(max_new_tokens=1, output_scores=True)['scores'][0][0][0]`: the logit of token 0."""
    from transformers import AutoModelForCausalLM

    tensors = tiny_state() | {"lm_head.weight": rand(259, H)}
    folder = write(tmp_path / "Llama-3.1-Nemotron-70B-Reward-HF", tensors, architecture="LlamaForCausalLM")
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.eval()

    def reference(item: ScoreItem) -> float:
        ids = torch.tensor([chat(folder, item)])
        made = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=1, return_dict_in_generate=True,
            output_scores=True, do_sample=False,
        )  # fmt: skip
        return float(made["scores"][0][0][0])

    agree(folder, reference, "nemotron")
    other = shutil.copytree(folder, tmp_path / "renamed")
    assert adapter_of(str(other)) is None
    agree(other, reference, "nemotron", adapter="nemotron")
    assert adapter_of(str(shutil.copytree(folder, folder / "policy"))) is None
    cached = shutil.copytree(other, tmp_path / "models--nvidia--Llama-3.1-Nemotron-70B-Reward-HF" / "snapshots" / "1f")
    found = adapter_of(str(cached))
    assert found is not None
    assert found[0] == "nemotron"


# --- several ratings ----------------------------------------------------------------------------------------------


def gating(tokenizer: Any) -> None:
    special = ["<|eot_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"]
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    tokenizer.chat_template = (
        "{{ '<|begin_of_text|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + '<|end_header_id|>' "
        "+ '\n\n' + m['content'] + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    )


def gate_place(folder: Path, ids: list[int], turn: str) -> int:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    pattern = tokenizer.encode(turn, add_special_tokens=False)
    return next(j for j in range(len(ids) - len(pattern), -1, -1) if ids[j : j + len(pattern)] == pattern)


def gemma() -> tuple[Tensors, dict[str, Any]]:
    """A small random Gemma 2 and its configuration."""
    from transformers import AutoConfig, AutoModel

    small = {"hidden_size": H, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    small |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 262, "query_pre_attn_scalar": 16}
    auto: Any = AutoModel
    model = auto.from_config(AutoConfig.for_model("gemma2", **small))
    state = {f"model.{n}": rand(*t.shape, seed=k, scale=0.2) for k, (n, t) in enumerate(model.state_dict().items())}
    return state, small | {"model_type": "gemma2", "rope_scaling": None, "rope_parameters": None}


def gemma_turns(tokenizer: Any) -> None:
    tokenizer.add_special_tokens({"additional_special_tokens": ["<start_of_turn>", "<end_of_turn>"]})
    tokenizer.chat_template = (
        "{% for m in messages %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n"
        "{{ m['content'] }}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    )


@pytest.mark.parametrize("kind", ["armorm", "qrm", "qrm-gemma"])
def test_gated_ratings(tmp_path: Path, kind: str) -> None:
    """ArmoRM's modeling file, rewardbench/models/qrm.py and, for Gemma 2, another project's scoring/qrm.py: ratings of
    the last token, a gate of the prompt's last."""
    attributes, quantiles, inner = (5, 19, 24) if kind == "qrm-gemma" else (19, 5, 24)
    g: Tensors = {"gating.logit_scale": torch.tensor([1.3])}
    state, config = tiny_state(), {"num_quantiles": quantiles, "gating_temperature": 2, "num_labels": attributes}
    tokens, turn = gating, "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"
    if kind == "qrm-gemma":  # whose configuration says neither
        (state, config), tokens, turn = gemma(), gemma_turns, "<end_of_turn>\n<start_of_turn>model\n"
    else:
        g["reward_transform_matrix"] = rand(attributes, attributes)
    temperature = config.get("gating_temperature", 1)
    architecture = {"qrm-gemma": "Gemma2ForQuantileSequenceClassification"}.get(kind, "LlamaForRewardModelWithGating")
    quantile = kind != "armorm"
    rows = attributes * (quantiles if quantile else 1)
    g["regression_layer.weight"] = rand(rows, H, seed=5)
    widths = [(inner, H), (inner, inner), (inner, inner), (attributes, inner)]
    layers = {"armorm": (0, 1, 2, 3), "qrm": (0, 3, 6, 9), "qrm-gemma": (0, 4, 8, 11)}[kind]
    for n, (out, width) in enumerate(widths):
        g[f"gating.layers.{layers[n]}.weight"] = rand(out, width, seed=10 + n)
        if kind == "armorm" or n == 3:
            g[f"gating.layers.{layers[n]}.bias"] = rand(out, seed=20 + n)
        if quantile and n < 3:
            base = f"gating.layers.{layers[n] + 2}"
            g |= {f"{base}.weight": rand(out, seed=30 + n) + 1, f"{base}.bias": rand(out, seed=40 + n)}
            g |= {
                f"{base}.running_mean": rand(out, seed=50 + n),
                f"{base}.running_var": rand(out, seed=60 + n).abs() + 0.5,
            }
            g[f"{base}.num_batches_tracked"] = torch.tensor(3)
    folder = write(
        tmp_path / "rm",
        state | g,
        architecture=architecture,
        config=config,
        tokens=tokens,
    )

    def parts(item: ScoreItem) -> tuple[torch.Tensor, float]:
        ids = chat(folder, item)
        states = reference_states(folder, ids)
        x = states[gate_place(folder, ids, turn)][None]
        for n in range(4):
            name = f"gating.layers.{layers[n]}"
            x = F.linear(x, g[f"{name}.weight"], g.get(f"{name}.bias"))
            if n < 3:
                x = F.relu(x)
                if quantile:
                    base = f"gating.layers.{layers[n] + 2}"
                    mean, var = g[f"{base}.running_mean"], g[f"{base}.running_var"]
                    x = F.batch_norm(x, mean, var, g[f"{base}.weight"], g[f"{base}.bias"], training=False)
        gate = F.softmax(x / temperature, dim=1) * g["gating.logit_scale"][0]
        ratings = F.linear(states[-1][None], g["regression_layer.weight"])
        if quantile:
            ratings = ratings.reshape(-1, attributes, quantiles).mean(dim=2)
        transform = g.get("reward_transform_matrix", torch.eye(attributes))
        return ratings[0], float(torch.sum(gate * (ratings @ transform), dim=1))

    results = agree(folder, lambda item: parts(item)[1], kind)
    assert results[0].parts[0].name.endswith("helpfulness")
    assert [part.reward for part in results[0].parts] == pytest.approx(parts(ITEMS[0])[0].tolist(), abs=1e-5)
    total = sum((p.value or 0) * (p.weight or 0) for p in results[0].parts)
    assert total == pytest.approx(results[0].reward, abs=1e-5)


@pytest.mark.parametrize("follows", ["correctness", "The response is short."])
def test_nemotron_by_a_principle(tmp_path: Path, follows: str) -> None:
    """The card of Llama-3.3-Nemotron-70B-Reward-Principle: score of Yes less that of No of one generated token."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def answers(tokenizer: Any) -> None:
        tokenizer.add_tokens(["Yes", "No"])

    tensors = tiny_state() | {"lm_head.weight": rand(259, H)}
    name = "Llama-3.3-Nemotron-70B-Reward-Principle"
    folder = write(tmp_path / name, tensors, architecture="LlamaForCausalLM", tokens=answers)
    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    question = (
        f"Evaluate the response to the previous prompt in terms of whether it satisfies this principle: {follows}. "
    )
    published = []
    for item in ITEMS:
        turns = [{"role": m.role, "content": m.text} for m in item.prompt]
        turns += [{"role": "assistant", "content": str(item.response)}]
        turns += [{"role": "user", "content": question + "Only answer Yes or No."}]
        ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        how = {"max_new_tokens": 1, "return_dict_in_generate": True, "output_scores": True, "do_sample": False}
        logits = model.generate(**ids, **how).scores[0][0]
        published.append(
            float(logits[tokenizer.convert_tokens_to_ids("Yes")] - logits[tokenizer.convert_tokens_to_ids("No")])
        )
    found = adapter_of(str(folder))
    assert found is not None
    assert found[0] == "nemotron-principle"
    results = scores(folder, [replace(item, principle=follows) for item in ITEMS])
    assert [result.reward for result in results] == pytest.approx(published, abs=1e-5)
    (unasked,) = load_scorer(ModelConfig(str(folder), device="cpu")).score(ITEMS[:1])
    assert isinstance(unasked, ScoreFailure)


def test_a_gate_that_a_conversation_lacks_is_a_failure(tmp_path: Path) -> None:
    tensors = {
        "gating.logit_scale": torch.ones(1),
        "reward_transform_matrix": torch.eye(2),
        "regression_layer.weight": rand(2, H),
    }
    layers = {"gating.layers.0.weight": rand(2, H), "gating.layers.0.bias": rand(2)}
    folder = write(tmp_path / "rm", tiny_state() | tensors | layers, architecture="LlamaForRewardModelWithGating")
    result = load_scorer(ModelConfig(str(folder), device="cpu")).score(ITEMS[:1])[0]
    assert isinstance(result, ScoreFailure)
    assert "where this model's gate is read" in result.message


def test_urm(tmp_path: Path) -> None:
    """sglang's LlamaForSequenceClassificationWithNormal_Weights, which is written for URM-LLaMa-3.1-8B."""
    score, widths = rand(10, H, scale=0.1), [(H, H), (H, H), (5, H)]
    layers = {f"weights.fc.{2 * n}.weight": rand(*w, seed=n, scale=0.1) for n, w in enumerate(widths)}
    layers |= {f"weights.fc.{2 * n}.bias": rand(w[0], seed=n + 7) for n, w in enumerate(widths)}
    folder = write(
        tmp_path / "rm",
        tiny_state() | layers | {"score.weight": score},
        architecture="LlamaForSequenceClassificationWithNormal_Weights",
        config={"id2label": {str(n): f"LABEL_{n}" for n in range(10)}},
    )

    def head(h: torch.Tensor) -> torch.Tensor:
        means = (score @ h).view(-1, 5, 2)[:, :, 0].view(-1, 5)
        x = h
        for n in range(3):
            x = layers[f"weights.fc.{2 * n}.weight"] @ x + layers[f"weights.fc.{2 * n}.bias"]
            x = F.selu(x) if n < 2 else x
        return (means * x).sum(dim=-1)

    results = agree(folder, on_last(folder, head), "urm")
    assert [part.name for part in results[0].parts] == [
        "helpfulness",
        "correctness",
        "coherence",
        "complexity",
        "verbosity",
    ]


def test_named_labels_become_parts(tmp_path: Path) -> None:
    """A stock classifier of five labels, against transformers' own class."""
    from transformers import AutoModelForSequenceClassification

    names = ["helpfulness", "correctness", "coherence", "complexity", "verbosity"]
    labels = {"id2label": dict(enumerate(names)), "label2id": {n: i for i, n in enumerate(names)}}
    folder = write(
        tmp_path / "rm",
        tiny_state() | {"score.weight": rand(5, H)},
        architecture="LlamaForSequenceClassification",
        config=labels,
    )
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder).eval()

    def logits(item: ScoreItem) -> torch.Tensor:
        with torch.no_grad():
            return torch.as_tensor(model(input_ids=torch.tensor([chat(folder, item)])).logits[0])

    results = agree(folder, lambda item: float(logits(item).mean()), "labelled")
    assert [part.name for part in results[0].parts] == names
    assert [part.reward for part in results[0].parts] == pytest.approx(logits(ITEMS[0]).tolist(), abs=1e-5)
    (tmp_path / "mine.py").write_text(
        "from assay.models.adapters.classifiers import labelled\n"
        "WEIGHTED = labelled({'helpfulness': 1.0, 'verbosity': -0.5})\n"
    )
    weighted = scores(folder, adapter=f"{tmp_path}/mine.py:WEIGHTED")
    first = logits(ITEMS[0])
    assert weighted[0].reward == pytest.approx(float(first[0] - 0.5 * first[4]), abs=1e-5)


# --- stock classifiers as other tools write them --------------------------------------------------------------------


def classifier(folder: Path, tokens: Callable[[Any], None] | None = None) -> Path:
    return write(
        folder,
        tiny_state() | {"score.weight": rand(1, H)},
        architecture="LlamaForSequenceClassification",
        config={"id2label": {"0": "LABEL_0"}},
        tokens=tokens,
    )


def test_a_stock_classifier_needs_no_adapter(tmp_path: Path) -> None:
    """Skywork-Reward's card: its template's beginning token is cut off where the tokenizer puts one too."""
    from tokenizers import processors
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    def llama3(tokenizer: Any) -> None:
        gating(tokenizer)
        tokenizer.bos_token = "<|begin_of_text|>"
        begin = ("<|begin_of_text|>", tokenizer.bos_token_id)
        template = processors.TemplateProcessing(single="<|begin_of_text|> $A", special_tokens=[begin])
        tokenizer.backend_tokenizer.post_processor = template

    folder = classifier(tmp_path / "rm", llama3)
    assert adapter_of(str(folder)) is None
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for item, result in zip(ITEMS, scores(folder), strict=True):
        turns = [{"role": m.role, "content": m.text} for m in item.prompt]
        turns.append({"role": "assistant", "content": str(item.response)})
        text = str(tokenizer.apply_chat_template(turns, tokenize=False)).removeprefix(tokenizer.bos_token)
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        assert ids[0, :2].tolist().count(tokenizer.bos_token_id) == 1
        with torch.no_grad():
            assert result.reward == pytest.approx(float(model(input_ids=ids).logits[0, 0]), abs=1e-5)


@pytest.mark.parametrize("name", ["math-shepherd-mistral-7b-prm", "starling-rm-7b", "nemotron-70b-reward"])
def test_a_classifier_trained_from_a_published_model_is_itself(tmp_path: Path, name: str) -> None:
    folder = classifier(tmp_path / name)
    assert adapter_of(str(folder)) is None


def test_the_policy_of_a_process_models_authors_is_no_reward_model(tmp_path: Path) -> None:
    state = tiny_state() | {"lm_head.weight": rand(259, H)}
    assert (
        adapter_of(str(write(tmp_path / "math-shepherd-mistral-7b-rl", state, architecture="LlamaForCausalLM"))) is None
    )


def test_pickled_weights_are_read_as_weights_only(tmp_path: Path) -> None:
    stock = classifier(tmp_path / "rm")
    pickled = shutil.copytree(stock, tmp_path / "pickled")
    torch.save(load_file(stock / "model.safetensors"), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    found = adapter_of(str(pickled))
    assert found is not None
    assert found[0] == "pickled"
    assert [s.reward for s in scores(pickled)] == pytest.approx([s.reward for s in scores(stock)], abs=1e-6)
    state = torch.load(pickled / "pytorch_model.bin", weights_only=True)
    for old in (False, True):  # both forms of torch's files; one that would run code is not read
        torch.save(state, pickled / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
        assert [s.reward for s in scores(pickled)] == pytest.approx([s.reward for s in scores(stock)], abs=1e-6)
        torch.save({**state, "x": Runs()}, pickled / "pytorch_model.bin", _use_new_zipfile_serialization=not old)
        one_line(pickled, "Python pickle, which can run code")


def test_a_lora_adapter_of_a_sequence_classifier(tmp_path: Path) -> None:
    """As peft's save_pretrained leaves it (TRL's RewardTrainer with a LoraConfig), against peft's own model."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForSequenceClassification

    base = write(tmp_path / "base", tiny_state() | {"lm_head.weight": rand(259, H)}, architecture="LlamaForCausalLM")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = AutoModelForSequenceClassification.from_pretrained(base, num_labels=1)
        settings = LoraConfig(task_type="SEQ_CLS", r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
        adapted = get_peft_model(model, settings).eval()
    adapted.save_pretrained(str(tmp_path / "lora"))
    shutil.copy(base / "tokenizer.json", tmp_path / "lora")
    shutil.copy(base / "tokenizer_config.json", tmp_path / "lora")
    shutil.copy(base / "chat_template.jinja", tmp_path / "lora")
    model.config.pad_token_id = 256

    def reference(item: ScoreItem) -> float:
        with torch.no_grad():
            return float(adapted(input_ids=torch.tensor([chat(base, item)])).logits[0, 0])

    agree(tmp_path / "lora", reference, "peft")
    weights = load_file(tmp_path / "lora" / "adapter_model.safetensors")
    broken = shutil.copytree(tmp_path / "lora", tmp_path / "broken")
    save_file({n: t for n, t in weights.items() if "layers.0" not in n}, broken / "adapter_model.safetensors")
    one_line(broken, "lacks weights of its adapter: .*layers.0")
    save_file({**weights, "base_model.model.h.lora_A.weight": rand(4, H)}, broken / "adapter_model.safetensors")
    one_line(broken, "has weights that nothing here reads: base_model.model.h.lora_A")
    shutil.rmtree(base)
    with pytest.raises(NotFoundError, match="is a PEFT adapter on"):
        load_scorer(ModelConfig(str(tmp_path / "lora"), device="cpu"))


@pytest.mark.parametrize("kind", ["deberta-v2", "modernbert", "roberta"])
def test_encoders_read_question_and_answer(tmp_path: Path, kind: str) -> None:
    """OpenAssistant's card: `model(**tokenizer(question, answer)).logits[0]`, by transformers' own classes."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import AutoConfig, AutoModelForSequenceClassification, PreTrainedTokenizerFast

    text = "Name a metal . Gold Glass is not but silver So tin Hi Hello ? ,"
    words = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *text.split(" ")]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]"
    )
    small: dict[str, Any] = {
        "vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "pad_token_id": 0, "num_labels": 1, "initializer_range": 0.2,
    }  # fmt: skip
    if kind == "deberta-v2":
        small |= {
            "relative_attention": True,
            "position_buckets": 8,
            "pos_att_type": ["p2c", "c2p"],
            "type_vocab_size": 0,
        }
    elif kind == "roberta":  # its positions begin at 2
        small |= {"max_position_embeddings": 42, "pad_token_id": 1, "type_vocab_size": 2}
    else:
        small |= {"global_attn_every_n_layers": 2, "local_attention": 8, "cls_token_id": 1, "sep_token_id": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **small)
        model: Any = AutoModelForSequenceClassification.from_config(config).eval()  # type: ignore[no-untyped-call]
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)

    def reference(item: ScoreItem) -> float:
        question = "\n".join(m.text for m in item.prompt)
        inputs = tokenizer(question, str(item.response), return_tensors="pt")
        keep = {k: v for k, v in inputs.items() if k != "token_type_ids" or kind != "modernbert"}
        with torch.no_grad():
            return float(model(**keep).logits[0, 0])

    agree(tmp_path, reference, "encoder")
    scorer = load_scorer(ModelConfig(str(tmp_path), device="cpu"))
    assert scorer.info.bradley_terry
    if kind == "roberta":
        (long,) = scorer.score([ScoreItem((Message("user", "metal " * 100),), "Gold.")])
        assert isinstance(long, Score)
        assert (long.tokens, long.truncated) == (40, True)


def test_labels_of_an_encoder_are_no_log_odds_of_a_comparison(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForSequenceClassification

    small: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_labels": 3}
    config = AutoConfig.for_model("bert", vocab_size=259, intermediate_size=32, **small)
    model: Any = AutoModelForSequenceClassification.from_config(config)  # type: ignore[no-untyped-call]
    stock = classifier(tmp_path)
    (stock / "model.safetensors").unlink()
    model.save_pretrained(stock)
    scorer = load_scorer(ModelConfig(str(stock), device="cpu"))
    (score,) = scorer.score(ITEMS[:1])
    assert isinstance(score, Score)
    assert [part.name for part in score.parts] == ["LABEL_0", "LABEL_1", "LABEL_2"]
    assert not scorer.info.bradley_terry


# --- process models -------------------------------------------------------------------------------------------------

QUESTION = (Message("user", "What is 2 + 3 * 4?"),)
STEPS = ["Step 1: 3 * 4 = 12", "Step 2: 2 + 12 = 14", "Step 3: The answer is: 14"]


def log_odds(folder: Path, separator: str) -> list[float]:
    """Rewards of the steps as the engine gives them, and as parts of a whole response's score."""
    scorer: Any = load_scorer(ModelConfig(str(folder), device="cpu"))
    steps, whole, none = scorer.score(
        [
            ScoreItem.of_steps(QUESTION, STEPS),
            ScoreItem(QUESTION, separator.join(STEPS)),
            ScoreItem.of_steps(QUESTION, []),
        ]
    )
    assert isinstance(whole, Score)
    assert isinstance(steps, Score)
    assert whole.reward == pytest.approx(min(steps.steps), abs=1e-5)
    assert whole.steps == pytest.approx(steps.steps, abs=1e-5)
    assert isinstance(none, ScoreFailure)
    assert "at least one step" in none.message
    return list(steps.steps)


def test_math_shepherd(tmp_path: Path) -> None:
    """The card's code: softmax of the logits of + and - at each `ки`; here their difference, the log-odds."""
    from tokenizers import AddedToken
    from transformers import AutoModelForCausalLM, AutoTokenizer

    def tokens(tokenizer: Any) -> None:
        tokenizer.add_tokens([AddedToken(text, lstrip=True) for text in ("ки", "+", "-")])

    tensors = tiny_state() | {"lm_head.weight": rand(259, H)}
    folder = write(tmp_path / "math-shepherd-mistral-7b-prm", tensors, architecture="LlamaForCausalLM", tokens=tokens)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    model.eval()
    candidates = tokenizer.encode("+ -", add_special_tokens=False)
    tag = tokenizer.encode("ки")[-1]
    ids = torch.tensor([tokenizer.encode(f"{QUESTION[0].text} " + "\n".join(f"{step} ки" for step in STEPS))])
    with torch.no_grad():
        good = model(ids).logits[:, :, candidates].softmax(dim=-1)[:, :, 0]
    published = good[ids == tag].tolist()
    assert len(published) == 3
    ours = torch.tensor(log_odds(folder, "\n")).sigmoid().tolist()
    assert ours == pytest.approx(published, abs=1e-5)


def test_qwen_math_prm(tmp_path: Path) -> None:
    """The card's make_step_rewards: softmax of two labels at each <extra_0>, the second one's probability."""
    from transformers import AutoTokenizer

    w0, b0, w2, b2 = rand(H, H), rand(H, seed=1), rand(2, H, seed=2), rand(2, seed=3)
    layers = {"score.0.weight": w0, "score.0.bias": b0, "score.2.weight": w2, "score.2.bias": b2}
    folder = write(
        tmp_path / "rm",
        tiny_state() | layers,
        architecture="Qwen2ForProcessRewardModel",
        tokens=lambda t: t.add_special_tokens({"additional_special_tokens": ["<extra_0>"]}),
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    messages = [
        {"role": "system", "content": "Please reason step by step, and put your final answer within \\boxed{}."},
        {"role": "user", "content": QUESTION[0].text},
        {"role": "assistant", "content": "<extra_0>".join(STEPS) + "<extra_0>"},
    ]
    ids = tokenizer.encode(tokenizer.apply_chat_template(messages, tokenize=False), add_special_tokens=False)
    states = reference_states(folder, ids)
    logits = F.linear(F.relu(F.linear(states, w0, b0)), w2, b2)
    mask = torch.tensor(ids) == tokenizer.encode("<extra_0>", add_special_tokens=False)[0]
    published = F.softmax(logits, dim=-1)[mask][:, 1].tolist()
    assert torch.tensor(log_odds(folder, "\n\n")).sigmoid().tolist() == pytest.approx(published, abs=1e-5)


def test_a_tokenizer_without_the_tag_of_steps_is_a_failure(tmp_path: Path) -> None:
    layers = {"score.0.weight": rand(H, H), "score.2.weight": rand(2, H)}
    folder = write(tmp_path, tiny_state() | layers, architecture="Qwen2ForProcessRewardModel")
    (result,) = load_scorer(ModelConfig(str(folder), device="cpu")).score([ScoreItem.of_steps(QUESTION, STEPS)])
    assert isinstance(result, ScoreFailure)
    assert "has no token of its own for '<extra_0>'" in result.message


@pytest.mark.parametrize("form", ["skywork-o1-prm", "trl-prm"])
def test_steps_as_pieces(tmp_path: Path, form: str) -> None:
    """Skywork's prepare_input and derive_step_rewards; TRL's PRMTrainer.tokenize_row with its token classifier."""
    from transformers import AutoTokenizer

    skywork = form == "skywork-o1-prm"
    rows = 1 if skywork else 2
    weight, bias = rand(rows, H), rand(rows, seed=1)
    name = "v_head.summary" if skywork else "score"
    folder = write(
        tmp_path / "rm",
        tiny_state() | {f"{name}.weight": weight, f"{name}.bias": bias},
        architecture="Qwen2ForPrmModel" if skywork else "LlamaForTokenClassification",
        config={"id2label": {"0": "LABEL_0", "1": "LABEL_1"}},
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def ids_of(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False))

    prompt = QUESTION[0].text + "\n" if skywork else QUESTION[0].text
    ids, flags = [tokenizer.bos_token_id, *ids_of(prompt)], []
    for step in STEPS:
        ids += [*ids_of(step), ids_of("\n")[-1]]
        flags.append(len(ids) - 1)
    outputs = F.linear(reference_states(folder, ids), weight, bias)[flags]
    expected = (outputs[:, 0] if skywork else outputs[:, 1] - outputs[:, 0]).tolist()
    assert log_odds(folder, "\n") == pytest.approx(expected, abs=1e-5)


# --- what cannot be read ----------------------------------------------------------------------------------------------


def one_line(folder: Path, match: str, kind: type[AssayError] = BadInputError) -> None:
    with pytest.raises(kind, match=match) as caught:
        load_scorer(ModelConfig(str(folder), device="cpu"))
    assert "\n" not in str(caught.value)


def test_a_form_without_its_head_says_what_is_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "rm", tiny_state(), architecture="INFORMForSequenceClassification")
    one_line(folder, r"looks like the form 'inf-orm', and has no weights named score\.0\.weight and score\.2\.weight")


def test_a_truncated_file_is_one_line(tmp_path: Path) -> None:
    folder = write(tmp_path / "rm", tiny_state() | {"value_head.weight": rand(1, H)}, architecture="RewardModel")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    one_line(folder, r"model\.safetensors: was cut short: \d+ of \d+ bytes")


def test_weights_that_nothing_reads_are_refused(tmp_path: Path) -> None:
    more = {"value_head.weight": rand(1, H), "cost_head.weight": rand(1, H)}
    one_line(
        write(tmp_path / "rm", tiny_state() | more, architecture="RewardModel"),
        r"nothing here reads: cost_head\.weight",
    )


@pytest.mark.parametrize(
    ("more", "config", "fault"),
    [
        ({"value_head.weight": rand(1, H + 1)}, {}, "its reward head does not fit hidden states of"),
        ({"value_head.weight": rand(1, H)}, {"hidden_size": "x"}, "has a wrong config.json"),
        ({"regression_layer.weight": rand(4, H)}, {}, "config.json says no num_quantiles"),
    ],
)
def test_a_head_that_does_not_fit_is_one_line(tmp_path: Path, more: Tensors, config: Any, fault: str) -> None:
    architecture = "RewardModel"
    if "regression_layer.weight" in more:
        architecture = "LlamaForRewardModelWithGating31"
        more |= {"gating.logit_scale": rand(1), "reward_transform_matrix": rand(5, 5)}
        more |= {"gating.layers.0.weight": rand(5, H), "gating.layers.2.running_mean": rand(5)}
    one_line(write(tmp_path, tiny_state() | more, architecture=architecture, config=config), fault)


def test_a_file_that_is_no_pickle_is_one_line(tmp_path: Path) -> None:
    folder = classifier(tmp_path)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"junk")
    one_line(folder, "pytorch_model.bin")


@pytest.mark.parametrize("architecture", ["RewardModel", "LlamaForSequenceClassification"])
def test_another_models_tokenizer_is_refused(tmp_path: Path, architecture: str) -> None:
    head = "value_head.weight" if architecture == "RewardModel" else "score.weight"
    one = {"id2label": {"0": "LABEL_0"}}
    folder = write(tmp_path / "rm", tiny_state() | {head: rand(1, H)}, architecture=architecture, config=one)
    tensors = load_file(folder / "model.safetensors")
    tensors["model.embed_tokens.weight"] = tensors["model.embed_tokens.weight"][:200].clone()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 200, "pad_token_id": 0}))
    one_line(folder, "its tokenizer has 259 tokens and its model 200: of another model")


def test_a_spec_that_is_written_keeps_the_form(tmp_path: Path) -> None:
    """As `assay calibrate` leaves it."""
    folder = write(tmp_path / "rm", tiny_state() | {"value_head.weight": rand(1, H)}, architecture="RewardModel")
    scorer: Any = load_scorer(ModelConfig(str(folder), device="cpu"))
    scorer.spec.write(folder)
    again = scores(folder)
    assert [result.reward for result in again] == [result.reward for result in scorer.score(ITEMS)]
    assert again[0].version == scorer.info.version


def test_every_form_says_what_it_was_written_from() -> None:
    for member in MODEL_ADAPTERS.entries():
        adapter = MODEL_ADAPTERS.find(member.name)
        assert adapter.reads
        assert adapter.source, member.name


def test_skywork_vl(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """TRL's value head over Qwen2.5-VL at the last token, in a file of its own, as two projects call it: here of
    conversations of text. Its image processor needs torchvision: without it images are refused, and text is scored."""
    from transformers import AutoConfig, AutoModel, Qwen2_5_VLForConditionalGeneration

    text: dict[str, Any] = {"hidden_size": H, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    text |= {"num_key_value_heads": 2, "vocab_size": 264, "rope_scaling": {"type": "mrope", "mrope_section": [2, 3, 3]}}
    seen = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "num_heads": 2, "out_hidden_size": H}
    config: dict[str, Any] = {"model_type": "qwen2_5_vl", "image_token_id": 260, "vision_config": seen, **text}
    auto: Any = AutoModel
    shapes = auto.from_config(AutoConfig.for_model(**config)).state_dict()
    state = {n: rand(*t.shape, seed=k, scale=0.2) for k, (n, t) in enumerate(shapes.items())}
    old = {re.sub("^language_model", "model", n): t for n, t in state.items()}  # as the checkpoint was published
    folder = write(
        tmp_path / "rm",
        old | {"lm_head.weight": rand(264, H)},
        architecture="Qwen2_5_VLForConditionalGeneration",
        config=config,
    )
    weight, bias = rand(1, H, seed=7), rand(1, seed=8)
    save_file({"v_head.summary.weight": weight, "v_head.summary.bias": bias}, folder / "value_head.safetensors")

    published: Any = Qwen2_5_VLForConditionalGeneration.from_pretrained(folder)

    def reference(item: ScoreItem) -> float:
        ids = torch.tensor([chat(folder, item)])
        with torch.no_grad():
            states = published.eval()(input_ids=ids, output_hidden_states=True).hidden_states[-1][0]
        return float(F.linear(states[-1], weight, bias))

    agree(folder, reference, "skywork-vl")
    assert "images are refused" in caplog.text
    (folder / "value_head.safetensors").unlink()
    one_line(folder, "is a language model without a reward head")
