"""Chat completions by generative models of this process: one at a time, with a bounded queue.

Leaves out: HTTP (`dialects.openai_chat`), the model (`generative.token_writer`). A completion whose client is gone is
generated to its end: generation cannot be interrupted.
"""

import asyncio
import secrets
from concurrent.futures import ThreadPoolExecutor

from assay.errors import BadInputError, BusyError, LateError
from assay.models.devices import is_out_of_memory
from assay_serving.chat.completion import Completes, Completion
from assay_serving.scorer import Scorer
from assay_serving.server.core.scoring_backend import ChatRequest, ChatResponse

#: A conversation is cut off there (finish: length): scores of the same model wait meanwhile.
WRITING_S = 60.0
MOST_WAITING = 64


class ChatQueue:
    """Used on the event loop; models generate in one thread."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="chat")
        self._waiting = 0

    async def complete(self, name: str, scorer: Scorer, request: ChatRequest) -> ChatResponse:
        """Raises BadInputError (no generative model, too long), BusyError (queue full), LateError."""
        if not isinstance(scorer, Completes):
            raise BadInputError(f"{name} is a reward model of kind {scorer.info.kind}: it scores, and writes nothing")
        if self._waiting >= MOST_WAITING:
            raise BusyError(f"{self._waiting} conversations are waiting", retry_after=5)

        def write() -> Completion:
            try:
                return scorer.complete(
                    request.messages,
                    max_tokens=request.max_tokens,
                    temperature=request.temperature,
                    top_p=request.top_p,
                    seed=secrets.randbits(31) if request.seed is None else request.seed,
                    stop=request.stop,
                    max_seconds=min(WRITING_S, request.timeout_s),
                )
            except RuntimeError as error:
                if not is_out_of_memory(error):
                    raise
            raise BusyError("out of memory on this conversation", retry_after=5)

        self._waiting += 1
        try:
            async with asyncio.timeout(request.timeout_s):
                completion = await asyncio.get_running_loop().run_in_executor(self._thread, write)
        except TimeoutError:
            raise LateError(f"not written within {request.timeout_s:g} s") from None
        finally:
            self._waiting -= 1
        return ChatResponse(name, scorer.info.version, completion)

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
