"""A tiny random vision-language model of SmolVLM's form (Idefics3): for tests and quick demos, needs no download.

Covers: a SigLIP encoder over 32 x 32 pixels, its 16 patches shuffled into one image token, a Llama of two layers, the
byte-level tokenizer of `tiny` with the tokens of images, the processor. Leaves out: any skill; images in several tiles.

Its weights are drawn wider than a large model's: at this width it then learns to tell colours in some 20 steps.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.models.quiet import quiet_transformers
from assay.models.tiny import SEED, SPECIAL, cached_model, tiny_llama, tiny_tokenizer

NAME = "tiny-vision"
#: As Idefics3's processor names them.
IMAGE_TOKENS = ("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
SIDE, PATCH, SHUFFLE = 32, 8, 4
DEVIATION = 0.1  #: of the weights
_CONTENT = (
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image>{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}"
)
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n" + _CONTENT + "<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def tiny_vision_model() -> Path:
    """Folder of the model in the user's cache, made on the first call. The same weights everywhere."""
    return cached_model("tiny-vision-2", make_tiny_vision)


def make_tiny_vision(
    folder: Path, *, hidden: int = 64, layers: int = 2, seed: int = SEED, words: Sequence[str] = ()
) -> None:
    """Write the model, its tokenizer and its processor to `folder` (safetensors, float32). `words`: texts that are one
    token each."""
    import torch
    from transformers import (
        Idefics3Config,
        Idefics3ForConditionalGeneration,
        Idefics3ImageProcessorPil,
        Idefics3Processor,
    )

    tokenizer = tiny_tokenizer((*SPECIAL, *IMAGE_TOKENS), words)
    tokenizer.chat_template = CHAT_TEMPLATE
    side = {"longest_edge": SIDE}
    images = Idefics3ImageProcessorPil(size=side, max_image_size=side, do_image_splitting=False)
    places = (SIDE // PATCH // SHUFFLE) ** 2
    processor = Idefics3Processor(images, tokenizer, image_seq_len=places, chat_template=CHAT_TEMPLATE)
    made: Any = Idefics3Config
    config = made(
        text_config=tiny_llama(tokenizer, hidden=hidden, layers=layers).to_dict() | {"initializer_range": DEVIATION},
        vision_config={
            "hidden_size": hidden,
            "intermediate_size": 2 * hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": 4,
            "image_size": SIDE,
            "patch_size": PATCH,
            "initializer_range": DEVIATION,
        },
        scale_factor=SHUFFLE,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE_TOKENS[0]),
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        initializer_range=DEVIATION,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Idefics3ForConditionalGeneration(config)
    with quiet_transformers():
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        processor.save_pretrained(folder)
