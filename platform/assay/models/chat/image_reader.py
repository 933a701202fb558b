"""Images for a vision-language model: what its processor makes of them, in text and in tensors.

Covers: loading a checkpoint's processor, images by content hash (of a workspace's media folder) or as data URLs, what
the processor writes in the place of an image, tensors of a batch's images, bounded memory for those that come again.
Leaves out: decoding (`assay.system.images`), chat templates and tokens (`renderer`), the forward pass
(`assay.models.attention.packing`). Nothing is fetched: an address of the web is refused.
"""

import base64
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from assay.conversation.message import images_of
from assay.domain import Message
from assay.errors import BackendError, BadInputError, NotFoundError
from assay.models.loading import load_config, load_processor
from assay.models.vision import image_token_of
from assay.store.media import MediaFolder
from assay.system.images import MOST_BYTES, MOST_PIXELS, decode_image

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)
MOST_CACHED = 256 << 20  #: bytes of processed images that are kept
#: Of one conversation, whose images a processor takes together: it may enlarge each, whatever its size, to tens of MB.
MOST_IMAGES = 16
MOST_PIXELS_TOGETHER = 2 * MOST_PIXELS
_DATA_URL = re.compile(r"data:[^,;]{0,100}(?:;[^,;]{0,100})*?;base64,", re.IGNORECASE)
#: What a processor returns beside the images' tensors.
_OF_TEXT = frozenset({"input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "text_replacement_offsets"})
_TOKEN_TYPES = ("token_type_ids", "mm_token_type_ids")

Arrays = Mapping[str, npt.NDArray[Any]]


class ReadImages(NamedTuple):
    """Images of one conversation. `texts`: what stands in the place of each; `arrays`: the processor's, by name."""

    texts: tuple[str, ...]
    arrays: Arrays

    @property
    def size(self) -> int:
        return sum(array.nbytes for array in self.arrays.values())


class ImageReader:
    """Reads images by the model's own processor. `media`: gives the folder of the workspace, where there is one. Safe
    to share between threads that take turns."""

    def __init__(self, processor: Any, media: Callable[[], MediaFolder | None] = lambda: None) -> None:
        self.processor, self.media = processor, media
        self.placeholder = str(processor.image_token)
        self._read: OrderedDict[tuple[str, ...], ReadImages] = OrderedDict()
        self._cached = 0  #: bytes

    @classmethod
    def load(
        cls,
        name: str,
        tokenizer: "PreTrainedTokenizerBase",
        media: Callable[[], MediaFolder | None] = lambda: None,
    ) -> "ImageReader | None":
        """Of the checkpoint's processor, with this tokenizer; None for a model that reads text alone, and, with a
        warning, for one whose processor cannot be loaded: its images are refused then."""
        if getattr(load_config(name), "vision_config", None) is None:
            return None
        try:
            processor: Any = load_processor(name)
        except (BackendError, NotFoundError) as error:
            log.warning("%s: images are refused: %s", name, error)
            return None
        if getattr(processor, "image_processor", None) is None or not getattr(processor, "image_token", None):
            return None
        processor.tokenizer = tokenizer
        return cls(processor, media)

    @property
    def identity(self) -> str:
        """Of all that shapes what the model sees of an image."""
        return str(self.processor.to_json_string())

    @property
    def template(self) -> str | None:
        """The processor's chat template."""
        return getattr(self.processor, "chat_template", None)

    def save(self, folder: Path) -> None:
        """Beside the tokenizer's files."""
        self.processor.save_pretrained(folder)

    def read(self, references: Sequence[str]) -> ReadImages:
        """The images of one conversation, at least one. Raises BadInputError for one that cannot be read."""
        key = tuple(hashlib.sha256(each.encode()).hexdigest() if len(each) > 200 else each for each in references)
        if key in self._read:
            self._read.move_to_end(key)
            return self._read[key]
        if len(references) > MOST_IMAGES:
            raise BadInputError(f"a conversation of {len(references)} images, over {MOST_IMAGES}", field="images")
        images, pixels = [], 0
        for reference in references:
            images.append(decode_image(self._bytes(reference)))
            pixels += images[-1].width * images[-1].height
            if pixels > MOST_PIXELS_TOGETHER:
                text = f"a conversation whose images have more than {MOST_PIXELS_TOGETHER // 10**6} megapixels together"
                raise BadInputError(text, field="images")
        read = self._process(images)
        self._read[key] = read
        self._cached += read.size
        while len(self._read) > 1 and self._cached > MOST_CACHED:
            self._cached -= self._read.popitem(last=False)[1].size
        return read

    def tensors(self, rows: Sequence[Sequence[str]], device: "torch.device") -> dict[str, "torch.Tensor"]:
        """Tensors of the images of a batch's rows, in their order; empty where no row has any.

        Rows follow one another along the first dimension; shorter ones are padded with zeros along the others, which
        is how the processors pad a batch themselves.
        """
        import torch

        read = [self.read(references).arrays for references in rows if references]
        if not read:
            return {}
        return {name: torch.from_numpy(_stacked([each[name] for each in read])).to(device) for name in read[0]}

    def inputs(self, network: Any, ids: "torch.Tensor", rows: Sequence[Sequence[str]]) -> dict[str, "torch.Tensor"]:
        """All that the forward pass of `network` takes beside token ids [B,S] whose rows have these images."""
        return self.tensors(rows, ids.device) | self.token_types(network, ids)

    def token_types(self, network: Any, ids: "torch.Tensor") -> dict[str, "torch.Tensor"]:
        """1 at the positions of images, for networks that ask for it."""
        import inspect

        takes = inspect.signature(network.forward).parameters
        places = ids.eq(-1 if (token := image_token_of(network.config)) is None else token).long()
        return {name: places for name in _TOKEN_TYPES if name in takes}

    def _process(self, images: "list[Image]") -> ReadImages:
        text = self.placeholder * len(images)
        try:
            inputs = dict(
                self.processor(
                    text=[text], images=[images], return_text_replacement_offsets=True, add_special_tokens=False
                )
            )
        except (ValueError, TypeError, ZeroDivisionError) as error:
            raise BadInputError(f"an image that the model's processor refuses: {error}", field="images") from error
        (offsets,) = inputs.get("text_replacement_offsets") or ([],)
        texts = tuple(str(each["replacement"]) for each in offsets)
        if len(texts) != len(images):
            raise BackendError(f"{type(self.processor).__name__} does not say what stands for an image")
        arrays = {name: _array(value) for name, value in inputs.items() if name not in _OF_TEXT}
        return ReadImages(texts, arrays)

    def _bytes(self, reference: str) -> bytes:
        if (match := _DATA_URL.match(reference)) is not None:
            if len(reference) - match.end() > MOST_BYTES * 4 // 3 + 4:
                raise BadInputError(f"an image of more than {MOST_BYTES // 10**6} MB", field="images")
            try:
                return base64.b64decode(reference[match.end() :], validate=True)
            except ValueError as error:  # also of text that is not ASCII
                raise BadInputError("an image whose base64 is broken", field="images") from error
        if ":" in reference:
            kind = reference.partition(":")[0][:20]
            raise BadInputError(
                f"an image by its address ({kind}:...), which is not fetched: send its bytes as a data URL, or import "
                "it into the workspace",
                field="images",
            )
        folder = self.media()
        path = None if folder is None else folder.find(reference)
        if path is None:
            where = "there is no workspace" if folder is None else "it is not in the workspace"
            raise BadInputError(f"the image {reference[:16]} cannot be read: {where}", field="images")
        return path.read_bytes()


def references_of(messages: Sequence[Message]) -> tuple[str, ...]:
    """What `ImageReader` reads the messages' images by: content hashes, or URLs of those that were never stored."""
    return tuple(image.content_hash or image.url or "" for image in images_of(tuple(messages)))


def _array(value: Any) -> npt.NDArray[Any]:
    array = np.asarray(value)
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _stacked(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    shape = tuple(max(sizes) for sizes in zip(*(array.shape[1:] for array in arrays), strict=True))
    padded = [
        np.pad(array, [(0, 0), *((0, most - size) for most, size in zip(shape, array.shape[1:], strict=True))])
        for array in arrays
    ]
    return np.concatenate(padded)
