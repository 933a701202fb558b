"""The rollouts of one step in `rollouts.jsonl`, located by binary search, since steps ascend, and sorted by reward or
group.

In a file of another format, at most `_FOREIGN` bytes in a row are read in search of a rollout. Leaves out: what
rollouts mean.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Literal, TypeAlias

from assay.browsing.messages import ShownMessage, shown_messages
from assay.data.json_lines import RowError, parse_object
from assay.domain import Message, prompt_of
from assay.score import NOT_APPLICABLE, ScoreFailure
from assay_policy_training.core.prompt import EPISODE
from assay_policy_training.measures.episodes import RecordedEpisode, episode_figures, failures_of
from assay_policy_training.plugins.environments.conversation import turn_messages
from assay_policy_training.plugins.environments.record import parts_of
from assay_web.runs.replies import (
    EpisodeReply,
    EpisodeTurnReply,
    PromptSamples,
    RunTable,
    SampleReply,
    SamplesSideBySide,
    StepBounds,
)

MOST = 4000  #: rollouts of a step that are read
MOST_TEXT = 20_000  #: characters of a text of an episode that are shown
_STEP = re.compile(rb'^\{"step": ?(\d{1,18})\b')
_NEAR = 1 << 16  #: bytes; from here on it is quicker to read on than to halve
_FOREIGN = 1 << 24  #: bytes; a longer line is no rollout of ours either


def step_bounds(path: Path) -> tuple[int, int] | None:
    """First and last step of the file; None without a whole line."""
    try:
        with path.open("rb") as stream:
            first = _rollout_after(stream, 0)
            last = None
            size = stream.seek(0, 2)
            back = _NEAR
            while first is not None and last is None:
                start = max(0, size - back)
                stream.seek(start)
                lines = stream.read(size - start).split(b"\n")[:-1]  # the last one is not whole, or empty
                matches = [match for line in lines if (match := _STEP.match(line))]
                last = int(matches[-1][1]) if matches else None
                if start == 0 or back >= _FOREIGN:
                    break
                back *= 4
    except OSError:
        return None
    return (first[0], last) if first is not None and last is not None else None


def rollouts_of(path: Path, step: int) -> list[dict[str, Any]]:
    """At most MOST of a step's whole, readable lines."""
    try:
        with path.open("rb") as stream:
            return list(_of_step(stream, step))
    except OSError:
        return []


def _of_step(stream: IO[bytes], step: int) -> Iterator[dict[str, Any]]:
    low, high = 0, stream.seek(0, 2)  # every line that begins before `low` is of an earlier step
    while high - low > _NEAR:
        middle = (low + high) // 2
        rollout = _rollout_after(stream, middle)
        if rollout is None or rollout[0] >= step:
            high = middle
        else:
            low = rollout[1]
    stream.seek(low)
    remaining = MOST
    for number, _, line in _rollouts(stream):
        if number > step or not remaining:
            return
        if number == step:
            try:
                yield parse_object(line)
            except RowError:
                continue
            remaining -= 1


def _rollout_after(stream: IO[bytes], offset: int) -> tuple[int, int] | None:
    """Step and offset of the first complete line that begins at or after `offset`."""
    stream.seek(max(0, offset - 1))
    # Skip the rest of the previous line; nothing if `offset` begins a line.
    if offset and not stream.readline(_FOREIGN).endswith(b"\n"):
        return None
    for number, begins, _ in _rollouts(stream):
        return number, begins
    return None


def _rollouts(stream: IO[bytes]) -> Iterator[tuple[int, int, bytes]]:
    """Step, offset and text of complete lines from here, until none is found within `_FOREIGN` bytes."""
    offset = since = stream.tell()
    while line := stream.readline(_FOREIGN):
        ends = offset + len(line)
        if line.endswith(b"\n") and (match := _STEP.match(line)):
            yield int(match[1]), offset, line
            since = ends
        elif ends - since >= _FOREIGN:
            return
        offset = ends


#: By reward, those without one last; `group`: the responses to one prompt together.
Order: TypeAlias = Literal["best", "worst", "group"]


def samples_of(
    rows: Sequence[Mapping[str, Any]], order: Order, *, limit: int, offset: int
) -> tuple[int, list[SampleReply]]:
    """The total, and the samples of one page."""
    if order == "group":
        chosen = sorted(rows, key=lambda row: str(row.get("uid")))
    else:
        scored = [row for row in rows if row.get("reward") is not None]
        scored.sort(key=lambda row: float(row["reward"]), reverse=order == "best")
        chosen = [*scored, *(row for row in rows if row.get("reward") is None)]
    return len(chosen), [_sample(row) for row in chosen[offset : offset + limit]]


def side_by_side(
    places: Sequence[tuple[Path, int | None]], *, limit: int, offset: int, text: str = ""
) -> SamplesSideBySide:
    """What was answered to the same prompt at each place, a file and a step (None: its last). `text`: of the prompt."""
    bounds = [step_bounds(path) for path, _ in places]
    steps = [
        None if bound is None else bound[1] if step is None else step
        for (_, step), bound in zip(places, bounds, strict=True)
    ]
    rows = [[] if step is None else rollouts_of(path, step) for (path, _), step in zip(places, steps, strict=True)]
    answers: dict[str, list[list[Mapping[str, Any]]]] = {}
    for number, rollouts in enumerate(rows):
        for row in rollouts:
            answers.setdefault(_task(row), [[] for _ in places])[number].append(row)
    chosen = [part for part in answers.values() if not text or text.lower() in _prompt_text(part).lower()]
    chosen.sort(key=lambda part: -sum(map(bool, part)))  # stable: as they were drawn
    prompts = []
    for part in chosen[offset : offset + limit]:
        samples = [[_sample(row) for row in answered] for answered in part]
        prompt = next(one for answered in samples for one in answered).prompt
        prompts.append(PromptSamples(prompt=prompt, samples=samples))
    ranges = [None if bound is None else StepBounds(first=bound[0], last=bound[1]) for bound in bounds]
    return SamplesSideBySide(steps=steps, bounds=ranges, prompts=prompts, total=len(chosen))


def _prompt_text(part: Sequence[Sequence[Mapping[str, Any]]]) -> str:
    return str(next(row for rows in part for row in rows).get("prompt"))


def _task(row: Mapping[str, Any]) -> str:
    return str(row.get("task_id") or row.get("prompt_id"))


def episode_table(rows: Sequence[Mapping[str, Any]], above: float) -> RunTable | None:
    """Figures of the rows that are episodes. Without a verdict one is solved where its reward is over `above`."""
    episodes = [RecordedEpisode(_task(row), row[EPISODE], _solved(row, above)) for row in rows if EPISODE in row]
    if not episodes:
        return None
    failures = failures_of(episodes)
    failed = ", ".join(f"{count} {code}" for code, count in failures.items())
    title = f"{len(episodes)} episodes" + (f", {sum(failures.values())} of them failed ({failed})" if failed else "")
    cells = [
        [
            figure.figure.replace("_", " "),
            _digits(figure.value),
            _digits(figure.low),
            _digits(figure.high),
            str(figure.episodes),
        ]
        for figure in episode_figures(episodes)
    ]
    return RunTable(title=title, head=["figure", "value", "low", "high", "episodes"], rows=cells)


def _solved(row: Mapping[str, Any], above: float) -> bool | None:
    verdict, reward = row.get("verified"), row.get("reward")
    return bool(verdict) if verdict is not None else None if reward is None else reward > above


def _digits(number: float | None) -> str:
    return "-" if number is None else f"{number:.4g}"


def _sample(row: Mapping[str, Any]) -> SampleReply:
    return SampleReply(
        uid=str(row.get("uid", "")),
        prompt=[ShownMessage(turn["role"], turn["content"]) for turn in row.get("prompt", ())],
        response=row.get("response", "") if EPISODE not in row else _cut(row["response"]),
        reward=row.get("reward"),
        parts=row.get("parts", {}),
        advantage=row.get("advantage"),
        verified=row.get("verified"),
        tokens=row.get("tokens", 0),
        truncated=bool(row.get("truncated")),
        trained=bool(row.get("trained")),
        failures=_failures(row),
        episode=_episode(row[EPISODE]) if EPISODE in row else None,
    )


def _failures(row: Mapping[str, Any]) -> list[str]:
    """Each reason once. That a part does not concern a row is one only where nothing else explains a missing reward."""
    failures = row.get("failures", ())
    reasons = [failure for failure in failures if failure["code"] != NOT_APPLICABLE]
    if not reasons and row.get("reward") is None:
        reasons = failures
    return list(dict.fromkeys(f"{failure['code']}: {failure['message']}" for failure in reasons))


def _episode(record: Mapping[str, Any]) -> EpisodeReply:
    tools = [{"role": "system", "content": record["tools"]}] if record["tools"] else []
    return EpisodeReply(
        environment=record["environment"],
        ended=record["ended"],
        opening=_shown_messages(prompt_of([*tools, *record["opening"]])),
        turns=[
            EpisodeTurnReply(
                messages=_shown_messages(turn_messages(turn)),
                rewards=_rewards(turn["rewards"]),
                tokens=turn["tokens"],
                seconds=turn["seconds"],
                calls=len(turn["calls"]),
                invalid=turn["invalid"],
                errors=sum(answer["error"] for answer in turn["results"]),
                oversized=turn["oversized"],
            )
            for turn in record["turns"]
        ],
        rewards=_rewards(record["rewards"]),
    )


def _shown_messages(messages: Iterable[Message]) -> list[ShownMessage]:
    """What is long is cut: an observation may have many megabytes."""
    shown = shown_messages(messages)
    for message in shown:
        for part in () if isinstance(message.content, str) else message.content:
            fields: dict[str, Any] = part  # type: ignore[assignment]
            fields.update({name: _cut(text) for name, text in fields.items()})
    return [ShownMessage(m.role, _cut(m.content) if isinstance(m.content, str) else m.content) for m in shown]


def _cut(text: str) -> str:
    more = len(text) - MOST_TEXT
    return f"{text[:MOST_TEXT]}… ({more} more characters in rollouts.jsonl)" if more > 0 else text


def _rewards(form: Mapping[str, Any]) -> dict[str, float | str]:
    return {
        name: f"{part.code}: {part.message}" if isinstance(part, ScoreFailure) else part
        for name, part in parts_of(form).items()
    }
