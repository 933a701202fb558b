"""Published models that read two responses at once, each against the publisher's scoring, rewritten here.

Small random checkpoints in the published names and shapes; the references are named at each.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from assay_command import captured
from published_models import rand
from safetensors.torch import load_file, save_file

from assay.conversation.parts import ImagePart, TextPart
from assay.domain import Message
from assay.errors import BadInputError
from assay.models.adapters.kind import adapter_of
from assay.score import Score, ScoreFailure
from assay_serving.engines.pairs import pair_texts
from assay_serving.engines.published import pair_form
from assay_serving.generative.pairwise import PairOutcome, PairQuestion
from assay_serving.model_config import ModelConfig
from assay_serving.model_loader import load_scorer, open_judge
from assay_serving.scorer import ScoreItem

WORDS = "Name a metal . Gold Glass is not but silver So tin Hi Hello ? , POST : RESPONSE A B Which response better USER"
PROMPT = (Message("user", "Name a metal ."),)
TURNS = (Message("user", "Hi ?"), Message("assistant", "Hello ."), *PROMPT)
PAIRS = [PairQuestion(PROMPT, "Gold .", "Glass is not , but silver is ."), PairQuestion(TURNS, "tin", "Glass ? So")]


def tokenizer_in(folder: Path, *added: str, single: str, pad: str = "[PAD]") -> Any:
    """Words as tokens; `single`: how one text is closed."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = [pad, "[CLS]", "[SEP]", "[UNK]", *added]
    words = [*special, *WORDS.split(" ")]
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens(special)
    inner.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    tokenizer: Any = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=inner,
        pad_token=pad,
        cls_token="[CLS]",
        sep_token="[SEP]",
        eos_token="[SEP]",
        unk_token="[UNK]",
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def random_state(model: Any, prefix: str = "") -> dict[str, torch.Tensor]:
    return {f"{prefix}{n}": rand(*t.shape, seed=k, scale=0.2) for k, (n, t) in enumerate(model.state_dict().items())}


@pytest.fixture
def pairrm(tmp_path: Path) -> Path:
    from transformers import DebertaV2Config, DebertaV2Model

    marks = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
    tokenizer = tokenizer_in(tmp_path, *marks, single="[CLS] $A [SEP]")
    small: dict[str, Any] = {
        "vocab_size": len(tokenizer), "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
        "intermediate_size": 32, "pad_token_id": 0, "relative_attention": True, "position_buckets": 8,
        "pos_att_type": ["p2c", "c2p"], "type_vocab_size": 0, "position_biased_input": False,
    }  # fmt: skip
    config = DebertaV2Config(**small)
    state = random_state(DebertaV2Model(config), "pretrained_model.")
    state |= {"head_layer.1.weight": rand(32, 64), "head_layer.1.bias": rand(32), "head_layer.4.weight": rand(3, 32)}
    state |= {"head_layer.4.bias": rand(3, seed=1)}
    save_file(state, tmp_path / "model.safetensors", metadata={"format": "pt"})
    ids = dict(zip(("source_prefix_id", "cand1_prefix_id", "cand2_prefix_id"), (4, 5, 6), strict=True))
    told = config.to_dict() | ids | {"architectures": ["DebertaV2PairRM"], "n_tasks": 3, "drop_out": 0.05}
    (tmp_path / "config.json").write_text(json.dumps(told))
    return tmp_path


def published_pairrm(folder: Path, pair: PairQuestion) -> float:
    """rewardbench/models/pairrm.py of allenai/reward-bench: `tokenize_pair` (of several turns `tokenize_conv_pair`) and
    `DebertaV2PairRM.forward`, the first response shown first."""
    from transformers import AutoTokenizer, DebertaV2Config, DebertaV2Model

    config = json.loads((folder / "config.json").read_text())
    model: Any = DebertaV2Model(DebertaV2Config(**config))
    tensors = load_file(folder / "model.safetensors")
    state = {n.removeprefix("pretrained_model."): t for n, t in tensors.items() if n.startswith("pretrained_model.")}
    model.load_state_dict(state)
    model.eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [pair.prompt[0].text, str(pair.first), str(pair.second)]
    if len(pair.prompt) > 1:
        start = "Finish the following coversation in each i-th turn by filling in <Response i> with your response."
        users = [m.text for m in pair.prompt if m.role == "user"]
        source = "\n".join(f"USER: {text}\nAssistant: <Response {n}>" for n, text in enumerate(users, 1))
        before = [m.text for m in pair.prompt if m.role == "assistant"]
        texts = [start + source]
        for last in (pair.first, pair.second):
            texts.append("\n".join(f"<Response {n}>: {text}" for n, text in enumerate([*before, str(last)], 1)))
    marks = ("<|source|>", "<|candidate1|>", "<|candidate2|>")
    rows = [tokenizer.encode(mark + text) for mark, text in zip(marks, texts, strict=True)]
    ids = torch.tensor([[token for row in rows for token in row]])
    with torch.no_grad():
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    source_state, first, second = (states[ids == config[f"{name}_prefix_id"]] for name in ("source", "cand1", "cand2"))

    def rated(response: torch.Tensor) -> torch.Tensor:
        x = torch.cat([source_state, response], dim=-1)
        x = torch.tanh(F.linear(x, tensors["head_layer.1.weight"], tensors["head_layer.1.bias"]))
        return F.linear(x, tensors["head_layer.4.weight"], tensors["head_layer.4.bias"])

    return float((rated(first) - rated(second)).mean())


@pytest.fixture
def steamshp(tmp_path: Path) -> Path:
    from transformers import T5Config, T5ForConditionalGeneration

    folder = tmp_path / "SteamSHP-flan-t5-xl"
    folder.mkdir()
    tokenizer = tokenizer_in(folder, single="$A [SEP]")
    small: dict[str, Any] = {
        "d_model": 32,
        "d_kv": 16,
        "d_ff": 32,
        "num_layers": 2,
        "num_heads": 2,
        "vocab_size": len(tokenizer),
    }
    small |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 2, "tie_word_embeddings": False}
    model = T5ForConditionalGeneration(T5Config(**small, feed_forward_proj="gated-gelu"))
    model.load_state_dict(random_state(model))
    model.save_pretrained(folder)
    return folder


def published_steamshp(folder: Path, post: str, first: str, second: str) -> torch.Tensor:
    """Scores of the one generated token, as the card and trlx's reward function call it (no line breaks in texts)."""
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = T5ForConditionalGeneration.from_pretrained(folder)
    texts = [text.replace("\n", " ") for text in (post, first, second)]
    text = "POST: {} \n\n RESPONSE A: {}\n\n RESPONSE B: {}\n\n Which response is better? RESPONSE".format(*texts)
    ids = tokenizer([text], return_tensors="pt").input_ids
    how = {"return_dict_in_generate": True, "output_scores": True, "max_new_tokens": 1, "do_sample": False}
    scores: torch.Tensor = model.generate(ids, **how).scores[0][0]
    return scores[tokenizer.convert_tokens_to_ids(["A", "B"])] - scores.logsumexp(0)


def judged(folder: Path, pairs: list[PairQuestion]) -> list[PairOutcome]:
    outcomes = open_judge(ModelConfig(str(folder), device="cpu")).compare(pairs)
    assert all(isinstance(outcome, PairOutcome) for outcome in outcomes), outcomes
    return outcomes  # type: ignore[return-value]


def test_pairrm(pairrm: Path) -> None:
    """Each order's log-odds are its logit; of both orders together the sign is that of PairRMPipeline."""
    found = adapter_of(str(pairrm))
    assert found is not None
    assert found[0] == "pairrm"
    for pair, outcome in zip(PAIRS, judged(pairrm, PAIRS), strict=True):
        swapped = PairQuestion(pair.prompt, pair.second, pair.first)
        published = [published_pairrm(pairrm, one) for one in (pair, swapped)]
        odds = [answer.log_odds("A", "B") for order in outcome.orders for answer in order.answers]
        assert odds == pytest.approx(published, abs=1e-5)
        assert outcome.decision == ("A" if published[0] - published[1] > 0 else "B")
    assert len({round(published_pairrm(pairrm, pair), 4) for pair in PAIRS}) == 2


def test_pairrm_is_no_scorer_and_says_what_it_reads(pairrm: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadInputError, match="compares two responses and scores none by itself"):
        load_scorer(ModelConfig(str(pairrm), device="cpu"))
    code, out, err = captured(capsys)("models", "check", pairrm, "--device", "cpu")
    assert code == 0, err
    assert "form       pairrm (written from: publisher's code" in out
    assert "read at    '<|source|>' then '<|candidate1|>' then '<|candidate2|>'" in out
    assert out.count("holds (") == 2
    long = PairQuestion((Message("user", "metal " * 1300),), "Gold", "tin")
    (failed,) = open_judge(ModelConfig(str(pairrm), device="cpu")).compare([long])
    assert isinstance(failed, ScoreFailure)
    assert failed.code == "too_long"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"source_prefix_id": 9}, "config.json says source_prefix_id 9, its tokenizer 4"),
        ({"hidden_size": 64}, "does not fit"),
    ],
)
def test_a_wrong_pairrm_is_one_line(pairrm: Path, change: dict[str, Any], fault: str) -> None:
    config = json.loads((pairrm / "config.json").read_text())
    (pairrm / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(BadInputError, match=fault) as caught:
        open_judge(ModelConfig(str(pairrm), device="cpu"))
    assert "\n" not in str(caught.value)


def test_steamshp(steamshp: Path) -> None:
    """One response: P(A) beside an empty B, as the card rates it; a pair: the log-odds of A against B."""
    found = adapter_of(str(steamshp))
    assert found is not None
    assert found[0] == "steamshp"
    scorer = load_scorer(ModelConfig(str(steamshp), device="cpu"))
    items = [ScoreItem(pair.prompt, text) for pair in PAIRS for text in (pair.first, f"{pair.second}\nSo")]
    for item, result in zip(items, scorer.score(items), strict=True):
        assert isinstance(result, Score)
        post = " ".join(message.text for message in item.prompt)
        published = published_steamshp(steamshp, post, str(item.response), ".")
        assert result.reward == pytest.approx(math.exp(published[0]), abs=1e-6)
    for pair, outcome in zip(PAIRS, judged(steamshp, PAIRS), strict=True):
        post = " ".join(message.text for message in pair.prompt)
        published = published_steamshp(steamshp, post, str(pair.first), str(pair.second))
        assert outcome.orders[0].answers[0].log_odds("A", "B") == pytest.approx(
            float(published[0] - published[1]), abs=1e-5
        )
    (cut,) = scorer.score([ScoreItem((Message("user", "metal " * 600),), "Gold")])
    assert isinstance(cut, Score)
    assert (cut.truncated, cut.tokens <= 512) == (True, True)
    assert not scorer.info.bradley_terry


def test_pairrm_numbers_turns_by_the_questions_whatever_else_is_said() -> None:
    """As `tokenize_conv_pair` numbers them, which takes no system turn."""
    first, second = Message("response_1", "Gold ."), Message("response_2", "tin")
    plain = pair_texts((*TURNS, first, second))
    told = pair_texts((Message("system", "So ."), *TURNS, first, second))
    assert plain[1] == "<Response 1>: Hello .\n<Response 2>: Gold ."
    assert told[1:] == plain[1:]
    assert told[0] == plain[0].replace("USER: Hi", "So .\nUSER: Hi")


@pytest.mark.parametrize("reference", ["ensemble.yaml", "dpo:tiny@tiny", "http://127.0.0.1:1"])
def test_what_is_made_of_models_is_no_pair_model(tmp_path: Path, reference: str) -> None:
    file = tmp_path / "ensemble.yaml"
    file.write_text("kind: ensemble\nscale: raw\nmembers: [tiny, tiny]\n")
    assert pair_form(ModelConfig(str(file) if reference == file.name else reference)) is None


@pytest.mark.parametrize("model", ["pairrm", "steamshp"])
def test_a_pair_is_read_whole_or_not_at_all(model: str, request: pytest.FixtureRequest) -> None:
    """An empty response is one, and not the prompt in its place; an image is refused, also in a turn that could go."""
    judge = open_judge(ModelConfig(str(request.getfixturevalue(model)), device="cpu"))
    image = (TextPart("See ."), ImagePart("0" * 64, "image/png"))
    seen = (Message("user", image), *TURNS[1:])
    pairs = [
        PairQuestion(PROMPT, "", "tin"),
        PairQuestion(PROMPT, "Gold .", "tin"),
        PairQuestion(seen, "Gold .", "tin"),
        PairQuestion(PROMPT, "tin", (Message("assistant", image),)),
    ]
    empty, plain, *refused = judge.compare(pairs)
    assert isinstance(empty, PairOutcome)
    assert isinstance(plain, PairOutcome)
    swapped = judge.compare([PairQuestion(PROMPT, "tin", "")])[0]
    assert isinstance(swapped, PairOutcome)
    odds = [one.answers[0].log_odds("A", "B") for one in (empty.orders[0], swapped.orders[1])]
    assert odds[0] == pytest.approx(odds[1], abs=1e-5)
    assert empty.orders[0].answers[0].tokens_in == plain.orders[0].answers[0].tokens_in - 2
    assert [isinstance(one, ScoreFailure) and (one.code, "reads text only" in one.message) for one in refused] == [
        ("bad_input", True)
    ] * 2
