"""The images of what is judged, in a judge's question: before the text, as R1-Reward's questions have them.

Covers: which images are shown, their names where there are several. Leaves out: sending them (`assay_serving.chat.
sent_images`); refusing them where the model reads text alone (`assay.models.chat.renderer`), for no judge judges blind.
"""

from collections.abc import Sequence

from assay.conversation.message import images_of
from assay.conversation.parts import ImagePart, Part, TextPart
from assay.domain import Message, Prompt, Response


def named_images(prompt: Prompt, responses: Sequence[Response]) -> tuple[Prompt, tuple[ImagePart, ...]]:
    """The prompt to write out, and the images, each once. An only image of the prompt is not named in its text."""
    images = tuple(dict.fromkeys(image for turns in (prompt, *responses) for image in images_of(turns)))
    if len(images) == 1 and not any(map(images_of, responses)):
        prompt = tuple(_without_images(message) if images_of((message,)) else message for message in prompt)
    return prompt, images


def content_with(text: str, images: Sequence[ImagePart]) -> str | tuple[Part, ...]:
    """The content of the question; of several images each follows the name that the text calls it by."""
    if not images:
        return text
    parts = [part for image in images for part in (TextPart(image.text_view), image)]
    return (*(parts if len(images) > 1 else images), TextPart(text))


def _without_images(message: Message) -> Message:
    return Message(message.role, tuple(part for part in message.parts if not isinstance(part, ImagePart)))
