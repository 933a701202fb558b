"""Which of several equal servers a prompt belongs to, by rendezvous hashing (Thaler and Ravishankar 1998).

All responses to a prompt have one home, so that caches and shared prefixes stay where they are; when a server comes or
goes, only its own prompts move. Leaves out: who serves (`engine_process.engine_client`, `client.base`). A conversation
that arrives rendered is hashed as a whole, because its prompt is not known.
"""

from collections.abc import Sequence

from assay.conversation.message import response_of_turns
from assay.domain import Prompt, Response
from assay.ids import conversation_json
from assay_serving.scorer import ScoreItem


def preference(key: bytes, names: Sequence[str]) -> list[int]:
    """Indexes of `names`, the home of `key` first, then those that take its place in turn."""
    import xxhash

    weights = [xxhash.xxh3_64_intdigest(name.encode() + b"\0" + key) for name in names]
    return sorted(range(len(names)), key=weights.__getitem__, reverse=True)


def prompt_bytes(prompt: Prompt) -> bytes:
    """Equal for equal prompts only."""
    return b"".join([m.role.encode() + response_bytes(response_of_turns((m,))) for m in prompt])


def prompt_key(item: ScoreItem) -> bytes:
    """Equal for items of one prompt."""
    if item.rendered is not None:
        return repr(item.rendered).encode("utf-8", "surrogatepass")
    return prompt_bytes(item.prompt)


def response_bytes(content: Response) -> bytes:
    text = content if isinstance(content, str) else conversation_json(content)
    return f"{len(text)}:{text}".encode("utf-8", "surrogatepass")
