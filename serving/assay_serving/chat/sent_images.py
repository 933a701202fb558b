"""Messages with images as OpenAI's chat format has them: `image_url` with a data URL.

Covers: images of a workspace's media folder and data URLs. Leaves out: fetching; an address of the web is refused.
"""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from assay.errors import BadInputError
from assay.store.media import MediaFolder


def sent_messages(messages: Sequence[Mapping[str, Any]], media: MediaFolder | None) -> list[dict[str, Any]]:
    """Of messages in JSON form. Raises BadInputError for an image that is not there."""
    return [
        dict(message)
        if isinstance(message["content"], str)
        else {**message, "content": [_sent(part, media) for part in message["content"]]}
        for message in messages
    ]


def _sent(part: Mapping[str, Any], media: MediaFolder | None) -> Mapping[str, Any]:
    if part["type"] != "image":
        return part
    url = str(part.get("url", ""))
    if (content_hash := part.get("content_hash")) is not None:
        path = None if media is None else media.find(str(content_hash))
        if path is None:
            raise BadInputError(f"image {content_hash} is not in the workspace; `assay doctor` names such images")
        url = f"data:{part['media_type']};base64,{base64.b64encode(path.read_bytes()).decode('ascii')}"
    elif not url.lower().startswith("data:"):
        raise BadInputError(f"an image was never fetched: {url} (assay data import --fetch-images)")
    return {"type": "image_url", "image_url": {"url": url}}
