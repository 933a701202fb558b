"""A tiny random language model with a byte-level tokenizer: for tests and quick demos, needs no download.

Covers: a Llama of about 0.1 M parameters that every code path accepts as a real model. Leaves out: any skill.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from assay.models.embedded import cache_folder
from assay.models.quiet import quiet_transformers

if TYPE_CHECKING:
    from transformers import LlamaConfig, PreTrainedTokenizerFast

NAME = "tiny"
SEED = 20240613
SPECIAL = ("<|pad|>", "<|im_start|>", "<|im_end|>")
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_model() -> Path:
    """Folder of the tiny model in the user's cache, made on the first call. The same weights everywhere."""
    return cached_model("tiny-1", make_tiny)


def cached_model(name: str, make: Callable[[Path], None]) -> Path:
    """The folder `name` of the user's cache, made by `make` on the first call."""
    target = cache_folder() / "models" / name
    if (target / "config.json").is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f"{name}.", dir=target.parent))
    try:
        make(scratch)
        os.chmod(scratch, 0o755)
        try:
            scratch.rename(target)
        except OSError:
            if not (target / "config.json").is_file():
                raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return target


def make_tiny(folder: Path, *, hidden: int = 64, layers: int = 2, seed: int = SEED, words: Sequence[str] = ()) -> None:
    """Write a tiny model and its tokenizer to `folder` (safetensors, float32). `words`: texts that are one token each,
    e.g. Yes and No, which bytes alone are not."""
    import torch
    from transformers import LlamaForCausalLM

    tokenizer = tiny_tokenizer(SPECIAL, words)
    tokenizer.chat_template = CHAT_TEMPLATE
    config = tiny_llama(tokenizer, hidden=hidden, layers=layers)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)


def tiny_tokenizer(special: Sequence[str], words: Sequence[str] = ()) -> "PreTrainedTokenizerFast":
    """Bytes, special tokens (padding, beginning and end first), and `words` as one token each."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={char: i for i, char in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken(token, special=True) for token in special])
    backend.add_tokens([AddedToken(word, normalized=False) for word in words])
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=backend, pad_token=special[0], bos_token=special[1], eos_token=special[2]
    )


def tiny_llama(tokenizer: "PreTrainedTokenizerFast", *, hidden: int, layers: int) -> "LlamaConfig":
    """The configuration of a small Llama for this tokenizer."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden,
        intermediate_size=2 * hidden,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
