"""Requests queued for an engine, and which of their items the next engine call takes.

Covers: a fair share for every client, small requests beside large ones, items with the same prompt in one call,
interactive work before bulk without starving it. Leaves out: time, threads, results (`batcher`).

The rules depend on order and size, never on the clock:

- A client's small requests are one flow, its large ones another. Flows are served by deficit round robin (Shreedhar and
  Varghese 1995): each gets the same number of characters in the long run, however many requests it has waiting. Within
  a flow: first come, first served.
- Where a call takes an item, it also takes the other waiting items with the same prompt, which cost only their
  responses: the engine computes the prompt once. Their flows pay for them.
- Interactive items go first; bulk items get an eighth of the same call. Where interactive work alone fills the
  calls, every eighth call begins with bulk.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol

from assay.domain import Prompt
from assay.score import ScoreResult
from assay_serving.scorer import ScoreItem
from assay_serving.server.core.scoring_backend import Priority

BULK_SHARE = 1 / 8  #: of an engine call in which interactive items are too
LARGE_SHARE = 1 / 4  #: of an engine call: a request that costs more is a large one
WORTH_SHARING = 64  #: characters of a prompt; computing a shorter one again costs less than looking for company


class Listener(Protocol):
    """Is notified of a request's results, also when its client is gone."""

    def scored(self, first: int, results: Sequence[ScoreResult]) -> None:
        """Results of items `first` and following."""
        ...

    def abandoned(self, first: int) -> None:
        """Items `first` and all after it will not be scored."""
        ...


@dataclass(slots=True, eq=False)
class PendingRequest:
    """The items of one request. `done` resolves to the results in the items' order.

    `deadline`: on the event loop's clock; items still waiting then are not scored. `relative`: items that follow each
    other with one prompt go into one call.
    """

    items: Sequence[ScoreItem]
    done: asyncio.Future[list[ScoreResult]]
    _: KW_ONLY
    priority: Priority = Priority.INTERACTIVE
    client: str = ""
    deadline: float = float("inf")
    arrived: float = 0.0
    listener: Listener | None = None
    relative: bool = False
    large: bool = field(default=False, init=False)  #: set by the queue
    taken: int = field(default=0, init=False)  #: items handed to the engine, always the first ones
    results: list[ScoreResult] = field(default_factory=list, init=False)
    sizes: list[int] = field(default_factory=list, init=False)  #: characters of each item without its prompt
    #: Of each item: its prompt's identity (0: not worth sharing) and size.
    prompts: list[tuple[int, int]] = field(default_factory=list, init=False)
    characters: int = field(init=False)  #: of all items, prompts that neighbours share counted once
    remaining: int = field(init=False)  #: of the items that no call has taken

    def __post_init__(self) -> None:
        self.characters = self.remaining = self._measure()

    def _measure(self) -> int:
        total = 0
        prompt: Prompt | None = None
        shared = (0, 0)
        for item in self.items:
            if prompt is None or (item.prompt is not prompt and item.prompt != prompt):
                prompt = item.prompt
                size = sum([len(message.content) for message in prompt])
                shared = (hash(prompt) or 1, size) if size >= WORTH_SHARING else (0, size)
                total += size
            size = item.characters - shared[1]
            self.sizes.append(size)
            self.prompts.append(shared)
            total += size
        return total

    def abandon(self) -> None:
        """The items that no call has taken will not be scored."""
        first, self.taken, self.remaining = self.taken, len(self.items), 0
        if self.listener is not None:
            self.listener.abandoned(first)

    def add(self, results: Sequence[ScoreResult]) -> None:
        """Results of the next items, in order."""
        first = len(self.results)
        self.results.extend(results)
        if self.listener is not None:
            self.listener.scored(first, results)
        if len(self.results) == len(self.items) and not self.done.done():
            self.done.set_result(self.results)


class EngineCall:
    """One engine call being assembled: runs of items, at most `items` of them and about `characters` of text."""

    def __init__(self, items: int, characters: float) -> None:
        self.parts: list[tuple[PendingRequest, int, int]] = []  #: request, first item, end
        self.late: list[PendingRequest] = []  #: removed from the queue because their deadline has passed
        self.items_left = items
        self.characters_left = characters
        self.items = 0
        self.characters = 0  #: taken, each prompt once
        self._prompts: set[int] = set()

    @property
    def has_room(self) -> bool:
        return self.items_left > 0 and self.characters_left > 0

    def take(self, pending: PendingRequest, most: float, only: int | None = None) -> int:
        """The next items of a request while there is room and they cost less than `most` characters; at least one.
        `only`: stop where another prompt than this begins. Returns what they cost."""
        start = index = pending.taken
        spent = 0
        while True:
            shared = pending.prompts[index]
            prompt, size = shared
            cost = total = pending.sizes[index]
            if prompt not in self._prompts:
                cost += size
                if prompt:
                    self._prompts.add(prompt)
            if not index or shared is not pending.prompts[index - 1]:
                total += size
            pending.remaining -= total
            spent += cost
            self.characters_left -= cost
            self.items_left -= 1
            index += 1
            if index == len(pending.items):
                break
            if pending.relative and pending.prompts[index] is shared:
                continue
            if spent >= most or not self.has_room:
                break
            if only is not None and pending.prompts[index][0] != only:
                break
        pending.taken = index
        self.parts.append((pending, start, index))
        self.items += index - start
        self.characters += spent
        return spent


@dataclass(slots=True, eq=False)
class _Flow:
    credit: float = 0.0  #: characters that it may still take in its turn; negative after it has taken too much
    pendings: OrderedDict[PendingRequest, None] = field(default_factory=OrderedDict)


class FairQueue:
    """The waiting requests of one priority."""

    def __init__(self) -> None:
        self.items = 0  #: waiting, not taken by a call
        self.characters = 0
        self._flows: OrderedDict[tuple[str, bool], _Flow] = OrderedDict()
        self._alike: dict[int, dict[PendingRequest, None]] = {}  #: requests by the prompt of their next item

    def __bool__(self) -> bool:
        return self.items > 0

    def add(self, pending: PendingRequest) -> None:
        flow = self._flows.get((pending.client, pending.large))
        if flow is None:
            flow = self._flows[pending.client, pending.large] = _Flow()
        flow.pendings[pending] = None
        self._list(pending)
        self.items += len(pending.items)
        self.characters += pending.characters

    def remove(self, pending: PendingRequest) -> None:
        """Remove the items of a request that no call has taken."""
        if pending.taken == len(pending.items):
            return
        self.items -= len(pending.items) - pending.taken
        self.characters -= pending.remaining
        self._unlist(pending)
        self._leave_flow(pending)
        pending.abandon()

    def clear(self) -> list[PendingRequest]:
        """Remove everything; returns the requests."""
        waiting = [pending for flow in self._flows.values() for pending in flow.pendings]
        for pending in waiting:
            self.remove(pending)
        return waiting

    def take(self, call: EngineCall, now: float) -> None:
        """Fill the call; at least one item if any waits. Requests whose deadline is `now` or before are removed."""
        quantum = max(1.0, call.characters_left / (2 * max(1, len(self._flows))))
        while self._flows and call.has_room:
            name, flow = next(iter(self._flows.items()))
            if flow.credit <= 0:
                flow.credit = quantum if len(self._flows) == 1 else flow.credit + quantum
            while flow.credit > 0 and flow.pendings and call.has_room:
                self._take(call, next(iter(flow.pendings)), flow, now)
            if flow.credit <= 0 and name in self._flows:
                self._flows.move_to_end(name)

    def _take(self, call: EngineCall, pending: PendingRequest, flow: _Flow, now: float) -> None:
        start = pending.taken
        if not self._move(call, pending, now, most=flow.credit):
            return
        for prompt in dict.fromkeys([prompt for prompt, _ in pending.prompts[start : pending.taken]]):
            while prompt and call.has_room and (alike := self._alike.get(prompt)):
                self._move(call, next(iter(alike)), now, most=float("inf"), only=prompt)

    def _move(
        self, call: EngineCall, pending: PendingRequest, now: float, *, most: float, only: int | None = None
    ) -> bool:
        """Put items of a request into the call; False where its deadline has passed."""
        if pending.deadline <= now:
            self.remove(pending)
            call.late.append(pending)
            return False
        start, remaining = pending.taken, pending.remaining
        self._unlist(pending)
        self._flows[pending.client, pending.large].credit -= call.take(pending, most, only)
        self.items -= pending.taken - start
        self.characters -= remaining - pending.remaining
        if pending.taken == len(pending.items):
            self._leave_flow(pending)
        else:
            self._list(pending)
        return True

    def _leave_flow(self, pending: PendingRequest) -> None:
        name = (pending.client, pending.large)
        flow = self._flows[name]
        del flow.pendings[pending]
        if not flow.pendings:
            del self._flows[name]

    def _list(self, pending: PendingRequest) -> None:
        if prompt := pending.prompts[pending.taken][0]:
            self._alike.setdefault(prompt, {})[pending] = None

    def _unlist(self, pending: PendingRequest) -> None:
        if prompt := pending.prompts[pending.taken][0]:
            alike = self._alike[prompt]
            del alike[pending]
            if not alike:
                del self._alike[prompt]


class Backlog:
    """The queue of one engine. `speed`: characters per second that it scores, as measured so far."""

    def __init__(self, speed: float = 1.0) -> None:
        self.speed = speed
        self._queues = {priority: FairQueue() for priority in Priority}
        self._passed = 0  #: calls in a row that left bulk waiting

    def __bool__(self) -> bool:
        return any(self._queues.values())

    @property
    def items(self) -> int:
        """Waiting, not taken by a call."""
        return sum(queue.items for queue in self._queues.values())

    @property
    def characters(self) -> int:
        return sum(queue.characters for queue in self._queues.values())

    @property
    def seconds(self) -> float:
        """Estimated time that the engine needs for what is waiting."""
        return self.characters / self.speed

    def add(self, pending: PendingRequest, *, large: int) -> None:
        """`large`: characters above which a request is a large one."""
        pending.large = pending.characters > large
        self._queues[pending.priority].add(pending)

    def remove(self, pending: PendingRequest) -> None:
        self._queues[pending.priority].remove(pending)

    def next_call(self, items: int, characters: float, now: float) -> EngineCall:
        """At most `items` items and about `characters` of text; at least one item if any waits in time."""
        call = EngineCall(items, characters)
        interactive, bulk = self._queues[Priority.INTERACTIVE], self._queues[Priority.BULK]
        if bulk and self._passed >= 1 / BULK_SHARE - 1:
            bulk.take(call, now)
            interactive.take(call, now)
            self._passed = 0
            return call
        interactive.take(call, now)
        interactive_items = call.items
        if bulk and interactive_items:
            call.items_left = min(call.items_left, max(1, int(items * BULK_SHARE)))
            call.characters_left = min(call.characters_left, characters * BULK_SHARE)
        bulk.take(call, now)
        self._passed = self._passed + 1 if bulk and call.items == interactive_items else 0
        return call

    def clear(self) -> list[PendingRequest]:
        """Remove everything; returns the requests."""
        return [pending for queue in self._queues.values() for pending in queue.clear()]
