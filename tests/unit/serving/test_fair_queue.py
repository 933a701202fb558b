"""Whose turn it is: shares of clients, priorities, shared prompts, deadlines. All counted in items and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message
from assay.score import ScoreResult
from assay_serving.scorer import ScoreItem
from assay_serving.server.batching.fair_queue import Backlog, EngineCall, PendingRequest
from assay_serving.server.core.scoring_backend import Priority

LONG = 1e12  #: characters: as good as no bound


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


class Ear:
    """Remembers the places that were given up."""

    def __init__(self) -> None:
        self.abandoned_from: list[int] = []

    def scored(self, first: int, results: Sequence[ScoreResult]) -> None:
        raise AssertionError("a queue scores nothing")

    def abandoned(self, first: int) -> None:
        self.abandoned_from.append(first)


def request(
    loop: asyncio.AbstractEventLoop,
    responses: int,
    *,
    client: str = "a",
    priority: Priority = Priority.INTERACTIVE,
    prompt: str = "Hi.",
    deadline: float = float("inf"),
    ear: Ear | None = None,
) -> PendingRequest:
    """Responses of ten characters each."""
    items = [ScoreItem((Message("user", prompt),), "x" * 10) for _ in range(responses)]
    return PendingRequest(
        items, loop.create_future(), client=client, priority=priority, deadline=deadline, listener=ear
    )


def taken(call: EngineCall, pending: PendingRequest) -> int:
    return sum(stop - start for one, start, stop in call.parts if one is pending)


def backlog_of(*requests: PendingRequest, large: int = 100) -> Backlog:
    backlog = Backlog()
    for pending in requests:
        backlog.add(pending, large=large)
    return backlog


def test_a_clients_large_requests_do_not_hold_up_another_client(loop: asyncio.AbstractEventLoop) -> None:
    large = [request(loop, 1024, client="trainer") for _ in range(4)]
    small = request(loop, 1, client="person")
    call = backlog_of(*large, small).next_call(512, 2000, 0)
    assert taken(call, small) == 1
    assert taken(call, large[0]) > 50
    assert not any(taken(call, pending) for pending in large[1:])  # first come, first served


def test_nor_its_own_small_ones(loop: asyncio.AbstractEventLoop) -> None:
    large, small = request(loop, 1024), request(loop, 1)
    call = backlog_of(large, small).next_call(512, 2000, 0)
    assert taken(call, small) == 1
    assert taken(call, large) > 50


def test_clients_get_equal_shares_however_much_they_ask_for(loop: asyncio.AbstractEventLoop) -> None:
    greedy = [request(loop, 500, client="greedy") for _ in range(20)]
    modest = request(loop, 500, client="modest")
    backlog = backlog_of(*greedy, modest)
    items = dict.fromkeys(("greedy", "modest"), 0)
    while modest.taken < 400:
        for pending, start, stop in backlog.next_call(64, 400, 0).parts:
            items[pending.client] += stop - start
    assert items["greedy"] == pytest.approx(items["modest"], abs=64)


def test_a_request_larger_than_a_turn_pays_for_it_later(loop: asyncio.AbstractEventLoop) -> None:
    heavy = PendingRequest(
        [ScoreItem((Message("user", "Hi."),), "x" * 5000) for _ in range(50)], loop.create_future(), client="heavy"
    )
    light = request(loop, 2000, client="light")
    backlog = backlog_of(heavy, light)
    while heavy.taken < 3:
        backlog.next_call(1000, 1000, 0)
    assert light.taken > 2 * 350  # two items of heavy are 10,000 characters; a short prompt and response are 13


def test_requests_that_share_a_prompt_meet_in_one_call(loop: asyncio.AbstractEventLoop) -> None:
    prompts = [letter * 200 for letter in "abc"]
    waiting = [request(loop, 1, prompt=prompts[n % 3], client=f"worker {n}") for n in range(24)]
    backlog = backlog_of(*waiting, large=10_000)
    room = len(prompts[0]) + 8 * 10
    calls = [backlog.next_call(512, room, 0) for _ in range(3)]
    found = [{pending.items[0].prompt[0].content for pending, _, _ in call.parts} for call in calls]
    assert [len(contents) for contents in found] == [1, 1, 1]
    assert [call.items for call in calls] == [8, 8, 8]
    assert calls[0].characters == room  # the prompt counted once
    assert not backlog


def test_a_group_of_one_request_is_counted_with_its_prompt_once(loop: asyncio.AbstractEventLoop) -> None:
    group = request(loop, 16, prompt="x" * 1000)
    assert group.characters == 1000 + 16 * 10
    call = backlog_of(group, large=10_000).next_call(512, 1160, 0)
    assert taken(call, group) == 16


def test_interactive_overtakes_a_flood_of_bulk_which_still_gets_its_share(loop: asyncio.AbstractEventLoop) -> None:
    flood = [request(loop, 1000, priority=Priority.BULK, client="trainer") for _ in range(8)]
    backlog = backlog_of(*flood)
    assert backlog.next_call(80, LONG, 0).items == 80  # nothing else waits
    person = request(loop, 3, client="person")
    backlog.add(person, large=100)
    call = backlog.next_call(80, LONG, 0)
    assert call.parts[0] == (person, 0, 3)
    assert call.items == 3 + 10  # an eighth of the call is bulk's: no more, so that the person's reply is soon there


@pytest.mark.parametrize("batch", [1, 2, 8, 64])
def test_a_flood_of_interactive_work_does_not_starve_bulk(loop: asyncio.AbstractEventLoop, batch: int) -> None:
    bulk = request(loop, 1000, priority=Priority.BULK, client="trainer")
    backlog = backlog_of(bulk)
    calls = 0
    while bulk.taken < 20:
        for n in range(batch):  # new work for a whole call, again and again
            backlog.add(request(loop, 1, client=f"person {n}"), large=100)
        call = backlog.next_call(batch, LONG, 0)
        calls += 1
        assert 1 <= call.items <= batch
        assert calls <= 8 * 20


def test_what_is_late_is_abandoned_and_not_taken(loop: asyncio.AbstractEventLoop) -> None:
    ear = Ear()
    late, timely = request(loop, 5, deadline=10, ear=ear), request(loop, 5, deadline=10.5)
    backlog = backlog_of(late, timely)
    call = backlog.next_call(512, LONG, 10)
    assert (call.late, taken(call, timely), call.items) == ([late], 5, 5)
    assert ear.abandoned_from == [0]
    assert (backlog.items, backlog.characters) == (0, 0)


def test_a_part_that_was_taken_is_not_abandoned(loop: asyncio.AbstractEventLoop) -> None:
    ear = Ear()
    pending = request(loop, 30, ear=ear)
    backlog = backlog_of(pending)
    backlog.next_call(8, LONG, 0)
    backlog.remove(pending)
    backlog.remove(pending)  # at once the last time
    assert ear.abandoned_from == [8]
    assert (backlog.items, backlog.characters, bool(backlog)) == (0, 0, False)


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"),
            st.integers(1, 30),
            st.sampled_from("abc"),
            st.sampled_from(list(Priority)),
            st.sampled_from(["Hi.", "x" * 100, "y" * 100]),
            st.sampled_from([5.0, float("inf")]),
        ),
        st.tuples(st.just("remove"), st.integers(0, 100)),
        st.tuples(st.just("call"), st.integers(1, 20), st.sampled_from([0.5, 60.0, 500.0, LONG])),
    ),
    max_size=60,
)


@given(STEPS)
def test_every_item_is_in_one_call_or_abandoned_and_the_counts_agree(steps: list[tuple[object, ...]]) -> None:
    loop = asyncio.new_event_loop()
    backlog = Backlog()
    requests: list[PendingRequest] = []
    seen: dict[int, list[int]] = {}
    ears: dict[int, Ear] = {}

    def play(call: EngineCall, most: int) -> None:
        assert call.items <= most
        for pending, start, stop in call.parts:
            seen[id(pending)] += range(start, stop)

    for number, step in enumerate(steps):
        match step:
            case ("add", int(count), str(client), Priority() as priority, str(prompt), float(deadline)):
                ear = Ear()
                made = request(loop, count, client=client, priority=priority, prompt=prompt, deadline=deadline, ear=ear)
                requests.append(made)
                seen[id(made)], ears[id(made)] = [], ear
                backlog.add(made, large=100)
            case ("remove", int(which)) if requests:
                backlog.remove(requests[which % len(requests)])
            case ("call", int(items), float(characters)):
                waited = any(p.taken < len(p.items) and p.deadline > number / 10 for p in requests)
                call = backlog.next_call(items, characters, number / 10)
                play(call, items)
                assert bool(call.parts) == waited
        assert backlog.items == sum(len(p.items) - p.taken for p in requests)
        assert backlog.characters == sum(p.remaining for p in requests)
    while backlog:
        play(backlog.next_call(7, 300, 0), 7)
    assert backlog.characters == 0
    for pending in requests:
        abandoned = ears[id(pending)].abandoned_from
        assert len(abandoned) <= 1
        end = abandoned[0] if abandoned else len(pending.items)
        assert seen[id(pending)] == list(range(end))  # each once, in order
    loop.close()
