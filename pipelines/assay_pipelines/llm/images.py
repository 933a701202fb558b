"""Images in messages for a model: named by their hash until a request is sent.

Covers: the images of conversations, contents with them, an estimate of their tokens. Leaves out: their bytes
(`assay_serving.chat.sent_images`), where they come from (`assay_pipelines.importers.images`). A queue of calls holds
hashes, not bytes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from assay.conversation.message import response_turns
from assay.conversation.parts import ImagePart
from assay.domain import Response

#: A chat request's content: a text, or its text and the images that it names.
Content: TypeAlias = str | Sequence[Mapping[str, Any]]

TOKENS = 1500  #: of one image, for estimates: what common models take for a screenful


def images_of(conversations: Iterable[Response]) -> list[ImagePart]:
    """The images in their order, each once."""
    turns = (turn for conversation in conversations for turn in response_turns(conversation))
    return list(dict.fromkeys(part for turn in turns for part in turn.parts if isinstance(part, ImagePart)))


def content_of(text: str, images: Sequence[ImagePart]) -> Content:
    """The text, after it each image under the name that the text calls it by."""
    if not images:
        return text
    parts: list[Mapping[str, Any]] = [{"type": "text", "text": text}]
    for image in images:
        parts += ({"type": "text", "text": image.text_view}, image.to_dict())
    return parts


def text_of(content: Content) -> str:
    return content if isinstance(content, str) else "\n".join(part.get("text", "") for part in content)


def image_tokens(content: Content) -> int:
    """About how many the images of a content are."""
    return 0 if isinstance(content, str) else TOKENS * sum(part["type"] == "image" for part in content)
