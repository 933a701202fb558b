"""Small random vision-language models of the published families' forms, their chat templates written here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from assay.models.tiny import SPECIAL, tiny_llama, tiny_tokenizer
from assay.models.tiny_vision import CHAT_TEMPLATE, IMAGE_TOKENS
from assay.models.vision import processor_without_videos

CONTENT = CHAT_TEMPLATE.replace("<image>", "PLACE")
SMALL = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


def gemma3(folder: Path) -> None:
    """Of Gemma 3, whose classifier is transformers' own."""
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, Gemma3ImageProcessorPil, Gemma3Processor

    tokenizer: Any = tiny_tokenizer((*SPECIAL, "<img>", "<boi>", "<eoi>"))
    tokenizer.chat_template = CONTENT.replace("PLACE", "<boi>")
    tokenizer._set_model_specific_special_tokens({"image_token": "<img>", "boi_token": "<boi>", "eoi_token": "<eoi>"})
    images = Gemma3ImageProcessorPil(size={"height": 32, "width": 32})
    token = tokenizer.convert_tokens_to_ids("<img>")
    kind: Any = Gemma3Config
    config = kind(
        text_config=SMALL | {"vocab_size": len(tokenizer), "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0},
        vision_config=SMALL | {"image_size": 32, "patch_size": 8},
        mm_tokens_per_image=4,
        image_token_index=token,
        image_token_id=token,
    )
    model = Gemma3ForConditionalGeneration(config)
    projector: Any = model.model.multi_modal_projector
    torch.nn.init.normal_(projector.mm_input_projection_weight)  # drawn as zeros
    write(folder, model, Gemma3Processor(images, tokenizer, image_seq_length=4, chat_template=tokenizer.chat_template))


def llava(folder: Path) -> None:
    """Of LLaVA."""
    from transformers import CLIPImageProcessorPil, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor

    tokenizer: Any = tiny_tokenizer((*SPECIAL, "<image>"))
    tokenizer.chat_template = CHAT_TEMPLATE
    images = CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    kind: Any = LlavaConfig
    config = kind(
        text_config=tiny_llama(tokenizer, hidden=64, layers=2).to_dict(),
        vision_config=SMALL | {"model_type": "clip_vision_model", "image_size": 32, "patch_size": 8},
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
    )
    made: Any = LlavaProcessor
    processor = made(
        images, tokenizer, patch_size=8, vision_feature_select_strategy="default", num_additional_image_tokens=1,
        chat_template=CHAT_TEMPLATE,
    )  # fmt: skip
    write(folder, LlavaForConditionalGeneration(config), processor)


def qwen2_vl(folder: Path) -> None:
    """Of Qwen2-VL: positions of three dimensions, as many places as the image has pixels for."""
    from transformers import Qwen2VLConfig, Qwen2VLForConditionalGeneration, Qwen2VLImageProcessorPil

    named = ("<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
    tokenizer: Any = tiny_tokenizer((*SPECIAL, *named))
    tokenizer.chat_template = CONTENT.replace("PLACE", "<|vision_start|><|image_pad|><|vision_end|>")
    images = Qwen2VLImageProcessorPil(patch_size=4, size={"shortest_edge": 256, "longest_edge": 1024})
    start, end, image, video = (tokenizer.convert_tokens_to_ids(name) for name in named)
    kind: Any = Qwen2VLConfig
    config = kind(
        text_config=SMALL
        | {"vocab_size": len(tokenizer), "num_key_value_heads": 2, "pad_token_id": tokenizer.pad_token_id}
        | {"rope_parameters": {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 10_000.0}},
        vision_config={"depth": 2, "embed_dim": 32, "hidden_size": 64, "num_heads": 2, "mlp_ratio": 2, "patch_size": 4},
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        vision_start_token_id=start,
        vision_end_token_id=end,
        image_token_id=image,
        video_token_id=video,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2VLForConditionalGeneration(config)
    made: Any = processor_without_videos(config)  # its own needs torchvision
    write(folder, model, made(images, tokenizer, chat_template=tokenizer.chat_template))


def smolvlm(folder: Path) -> None:
    """Of SmolVLM2, with Idefics3's processor, which writes the same: its own needs libraries for videos."""
    from transformers import (
        Idefics3ImageProcessorPil,
        Idefics3Processor,
        SmolVLMConfig,
        SmolVLMForConditionalGeneration,
    )

    tokenizer: Any = tiny_tokenizer((*SPECIAL, *IMAGE_TOKENS))
    tokenizer.chat_template = CHAT_TEMPLATE
    side = {"longest_edge": 32}
    images = Idefics3ImageProcessorPil(size=side, max_image_size=side, do_image_splitting=False)
    kind: Any = SmolVLMConfig
    config = kind(
        text_config=tiny_llama(tokenizer, hidden=64, layers=2).to_dict(),
        vision_config=SMALL | {"image_size": 32, "patch_size": 8},
        scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"),
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
    )
    processor = Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=CHAT_TEMPLATE)
    write(folder, SmolVLMForConditionalGeneration(config), processor)


def write(folder: Path, model: Any, processor: Any) -> None:
    for part in (model, processor.tokenizer, processor):
        part.save_pretrained(folder)
