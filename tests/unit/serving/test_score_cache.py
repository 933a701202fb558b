"""Scores by content address: keys, the bounds in memory, the file on disk through crashes, locks and full disks."""

from __future__ import annotations

import asyncio
import logging
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.domain import Message
from assay.errors import BadInputError, BusyError
from assay.models.chat.rendered_text import PolicyTemplate
from assay.models.spec import Judging
from assay.runs.progress_bar import Advance, silent
from assay.score import Score, ScorePart, ScoreResult
from assay_serving.chat.client import ChatEndpoint
from assay_serving.engines.ensemble import EnsembleMember, EnsembleScorer, EnsembleSpec
from assay_serving.engines.transformers import TransformersScorer
from assay_serving.generative.engine import GenerativeScorer
from assay_serving.generative.local import LocalWriter
from assay_serving.generative.remote import RemoteWriter
from assay_serving.generative.templates import POINTWISE
from assay_serving.model_config import ModelConfig
from assay_serving.scorer import ModelInfo, Rendered, ScoreItem, Scorer
from assay_serving.server.cache.disk_cache import FILE, DiskScoreCache
from assay_serving.server.cache.score_cache import ScoreCache, ScoreKeys

PROMPT = (Message("user", "Name a metal."),)
ITEM = ScoreItem(PROMPT, "Gold.")
INFO = ModelInfo("rm", "v1", "scalar", "t1", 512, calibrated=False, parity="passed", dtype="float32", device="cpu")
PATIENCE_S = 240.0


class Described:
    """An engine that is asked only what it is."""

    def __init__(self, info: ModelInfo = INFO, identity: str | None = "") -> None:
        self._info, self._identity = info, identity

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def score_identity(self) -> str | None:
        return self._identity

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        raise AssertionError("nothing is scored here")


def score(reward: float = 1.0, **changes: object) -> Score:
    return replace(Score(reward, "rm", "v1", "t1", 7, truncated=False), **changes)  # type: ignore[arg-type]


def key_of(item: ScoreItem = ITEM, engine: Scorer | None = None) -> bytes:
    keys = ScoreKeys.of_engine(engine or Described())
    assert keys is not None
    return keys.of([item])[0]


def number(n: int) -> bytes:
    """A key."""
    return key_of(ScoreItem(PROMPT, str(n)))


# --- keys


@pytest.mark.parametrize(
    "change",
    [
        {"version": "v2"},
        {"template_hash": "t2"},
        {"max_length": 256},
        {"dtype": "bfloat16"},
        {"attention": "eager"},
        {"device": "cuda:0"},
        {"calibration": "k-1"},
        {"kind": "principle"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_model_never_finds_the_score(change: dict[str, object]) -> None:
    assert key_of(engine=Described(replace(INFO, **change))) != key_of()  # type: ignore[arg-type]


def test_the_same_model_under_another_name_or_on_another_card_does() -> None:
    assert key_of(engine=Described(replace(INFO, name="other"))) == key_of()
    cards = [Described(replace(INFO, device=f"cuda:{n}")) for n in range(2)]
    assert key_of(engine=cards[0]) == key_of(engine=cards[1])


def test_settings_outside_of_the_version_are_part_of_the_key() -> None:
    assert key_of(engine=Described(identity="seed 1")) != key_of(engine=Described(identity="seed 2"))


def test_every_field_of_an_item_that_the_engine_reads_is_part_of_the_key() -> None:
    changes: dict[str, object] = {
        "prompt": (Message("user", "Name two metals."),),
        "response": "Silver.",
        "principle": "",
        "rendered": Rendered("Name a metal. Gold."),
        "label": "gold",
        "references": ("Silver.",),
        "steps": ("Silver.",),
    }
    assert set(changes) == {field.name for field in fields(ScoreItem)}
    composed = Described(replace(INFO, kind="composed"))
    keys = {key_of(replace(ITEM, **{name: value}), composed) for name, value in changes.items()}  # type: ignore[arg-type]
    assert len(keys | {key_of(engine=composed)}) == len(changes) + 1
    # A model reads neither label nor references: what a trainer passes along does not part equal items.
    assert key_of(replace(ITEM, label="gold", references=("Silver.",))) == key_of()


def test_an_ensemble_of_composed_rewards_reads_labels_too() -> None:
    spec = EnsembleSpec((EnsembleMember("a"), EnsembleMember("b")), scale="raw")
    alone = [Described(INFO), Described(INFO)]
    composed = [Described(replace(INFO, kind="composed")), Described(INFO)]
    for members, differs in ((alone, False), (composed, True)):
        engine = EnsembleScorer(spec, members, name="e")
        assert (key_of(replace(ITEM, label="gold"), engine) != key_of(engine=engine)) is differs


def test_every_field_of_a_rendered_conversation_is_part_of_the_key() -> None:
    given_ = Rendered("text", (1, 2))
    keys = {key_of(ScoreItem((), "", rendered=given_))}
    for field in fields(Rendered):
        value = getattr(given_, field.name)
        other = not value if isinstance(value, bool) else (1, 3) if isinstance(value, tuple) else "other"
        if isinstance(value, str) and value != "text":
            continue  # one of a closed set: another of them is not known here
        keys.add(key_of(ScoreItem((), "", rendered=replace(given_, **{field.name: other}))))  # type: ignore[arg-type]
    assert len(keys) >= 4


TEXTS = st.text(alphabet="a:;-1|", max_size=4)
ITEMS = st.builds(
    ScoreItem,
    st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), TEXTS), max_size=3).map(tuple),
    TEXTS,
    st.none() | TEXTS,
    label=st.none() | TEXTS,
    references=st.lists(TEXTS, max_size=2).map(tuple),
)


@given(ITEMS, ITEMS)
def test_different_items_have_different_keys(one: ScoreItem, other: ScoreItem) -> None:
    engine = Described(replace(INFO, kind="composed"))
    assert (key_of(one, engine) == key_of(other, engine)) == (one == other)


def test_a_key_does_not_depend_on_the_neighbours_and_takes_any_text() -> None:
    keys = ScoreKeys.of_engine(Described())
    assert keys is not None
    items = [ScoreItem(PROMPT, "a"), ScoreItem(PROMPT, "b"), ScoreItem((), "\ud800"), ScoreItem(PROMPT, "a")]
    together = keys.of(items)
    assert together == [keys.of([item])[0] for item in items]
    assert together[0] == together[3]


def test_engines_that_do_not_repeat_themselves_have_no_keys() -> None:
    class Plain:
        info = INFO

        def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
            raise AssertionError

    assert ScoreKeys.of_engine(Plain()) is None
    assert ScoreKeys.of_engine(Described(identity=None)) is None
    assert ScoreKeys.of_engine(Described(replace(INFO, version="unknown"))) is None
    judging = Judging(POINTWISE.name, POINTWISE.hash, samples=2, temperature=1.0)
    writer, spec = RemoteWriter.open(ChatEndpoint("http://127.0.0.1:9/v1", "judge"), judging)
    assert ScoreKeys.of_engine(GenerativeScorer(writer, spec)) is None
    local, own = LocalWriter.load(
        ModelConfig("tiny", device="cpu"),
        judging=judging,
    )
    assert key_of(engine=GenerativeScorer(local, own, seed=1)) != key_of(engine=GenerativeScorer(local, own, seed=2))
    told = GenerativeScorer(local, own, seed=1)
    told.expect([PolicyTemplate("tiny")])  # reads rendered texts otherwise
    assert key_of(engine=told) != key_of(engine=GenerativeScorer(local, own, seed=1))


def test_a_loaded_model_has_keys_and_reads_its_spec(tiny_reward_model: Path) -> None:
    loaded = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu"))
    other = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", served_as="other"))
    shorter = TransformersScorer.load(ModelConfig(str(tiny_reward_model), device="cpu", max_length=100))
    assert key_of(engine=loaded) == key_of(engine=other) != key_of(engine=shorter)


# --- memory


def test_the_least_recently_used_go_first() -> None:
    cache = ScoreCache(entries=3, max_bytes=1 << 20)
    for n in range(3):
        cache.put(number(n), score(n))
    assert cache.get(number(0)) == score(0)
    cache.put(number(3), score(3))
    assert [cache.get(number(n)) for n in range(4)] == [score(0), None, score(2), score(3)]
    assert len(cache) == 3


def test_bytes_bound_the_cache_too_and_are_counted_right() -> None:
    cache = ScoreCache(entries=1000, max_bytes=50_000)
    for n in range(100):
        cache.put(number(n % 60), score(n, principle="p" * (n % 7) * 100))
        assert cache.size <= 50_000
    assert 0 < len(cache) < 60
    cache.put(
        number(1000), score(principle="p" * 100_000)
    )  # larger than all: not kept, nor anything else lost count of
    assert (len(cache), cache.size) == (0, 0)


def test_nothing_is_kept_where_nothing_may_be() -> None:
    cache = ScoreCache(entries=0, max_bytes=0)
    cache.put(number(1), score())
    assert cache.get(number(1)) is None


# --- disk


def find(stored: DiskScoreCache, *keys: bytes) -> dict[bytes, Score]:
    return asyncio.run(stored.find(keys))


def test_scores_come_back_as_they_were(tmp_path: Path) -> None:
    whole = [
        score(0.1 + 0.2),
        score(-1e-300, probability=1 / 3, uncertainty=2.5, principle='ünïcode "quoted"\n', calibration="k-1"),
        score(parts=(ScorePart("rm", reward=1 / 3),)),
    ]
    stored = DiskScoreCache.open(tmp_path / "new" / "folder", max_rows=100)
    for n, one in enumerate(whole):
        stored.keep(number(n), one)
    stored.close()
    again = DiskScoreCache.open(tmp_path / "new" / "folder", max_rows=100)
    assert find(again, *map(number, range(4))) == {number(n): one for n, one in enumerate(whole)}
    assert [again.may_have(number(n)) for n in range(3)] == [True] * 3
    assert sum(again.may_have(number(n)) for n in range(1000, 2000)) < 100
    again.close()


def test_the_oldest_rows_go_first_also_after_a_restart(tmp_path: Path) -> None:
    for start in range(0, 3000, 500):
        stored = DiskScoreCache.open(tmp_path, max_rows=1000)
        for n in range(start, start + 500):
            stored.keep(number(n), score(n))
        stored.close()
    with duckdb.connect(str(tmp_path / FILE)) as db:
        [(rows,)] = db.execute("SELECT count(*) FROM scores").fetchall()
    assert 500 <= rows <= 1000
    stored = DiskScoreCache.open(tmp_path, max_rows=1000)
    assert len(find(stored, *map(number, range(2500, 3000)))) == 500
    assert not find(stored, *map(number, range(1500)))
    stored.close()


def test_a_score_that_is_there_already_is_no_second_row(tmp_path: Path) -> None:
    stored = DiskScoreCache.open(tmp_path, max_rows=100)
    for _ in range(3):
        stored.keep(number(1), score())
    stored.close()
    with duckdb.connect(str(tmp_path / FILE)) as db:
        assert db.execute("SELECT count(*) FROM scores").fetchall() == [(1,)]


WRITER = """
import sys
from pathlib import Path
from assay.score import Score
from assay_serving.server.cache.disk_cache import DiskScoreCache

stored = DiskScoreCache.open(Path(sys.argv[1]), max_rows=1_000_000)
n = 0
while True:
    for _ in range(200):
        stored.keep(n.to_bytes(32, "big"), Score(float(n), "rm", "v1", "t1", 7, truncated=False))
        n += 1
    while len(stored._waiting) > 1000:
        pass
    print(n, flush=True)
"""


def spawn(code: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)  # type: ignore[call-overload,no-any-return]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("written", [600, 6000])
def test_a_killed_process_costs_no_committed_score_and_no_file(tmp_path: Path, written: int) -> None:
    process = spawn(WRITER, str(tmp_path))
    try:
        assert process.stdout is not None
        counts = (int(line) for line in process.stdout)
        last = next(n for n in counts if n >= written)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    stored = DiskScoreCache.open(tmp_path, max_rows=1_000_000)
    # All but what still waited is there, each with its own reward and in order: no holes.
    found = find(stored, *(n.to_bytes(32, "big") for n in range(last + 100_000)))
    rewards = [found[key].reward for key in sorted(found)]
    assert rewards == [float(n) for n in range(len(rewards))]
    assert len(rewards) >= last - 3200
    stored.close()


def test_a_file_held_by_another_process_is_busy_and_names_it(tmp_path: Path) -> None:
    DiskScoreCache.open(tmp_path, max_rows=100).close()
    holder = "import duckdb, sys; held = duckdb.connect(sys.argv[1]); print(1, flush=True); sys.stdin.read()"
    process = spawn(holder, str(tmp_path / FILE), stdin=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        with pytest.raises(BusyError, match=rf"held by .*process {process.pid}"):
            DiskScoreCache.open(tmp_path, max_rows=100)
    finally:
        process.communicate("")


def test_files_that_are_no_score_cache_are_refused_and_left_alone(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    with duckdb.connect(str(foreign / FILE)) as db:
        db.execute("CREATE TABLE comparisons (id INTEGER)")
    with pytest.raises(BadInputError, match="something else"):
        DiskScoreCache.open(foreign, max_rows=100)
    with duckdb.connect(str(foreign / FILE)) as db:
        assert db.execute("SELECT table_name FROM duckdb_tables()").fetchall() == [("comparisons",)]

    shaped = tmp_path / "shaped"
    shaped.mkdir()
    with duckdb.connect(str(shaped / FILE)) as db:
        db.execute("CREATE TABLE scores (reward DOUBLE)")
    with pytest.raises(BadInputError, match=FILE):
        DiskScoreCache.open(shaped, max_rows=100)

    text = tmp_path / "text"
    text.mkdir()
    (text / FILE).write_text("no data base at all\n" * 1000, encoding="utf-8")
    with pytest.raises(BadInputError, match="not a score cache"):
        DiskScoreCache.open(text, max_rows=100)
    assert (text / FILE).read_text(encoding="utf-8").startswith("no data base")

    with pytest.raises(BadInputError, match="no folder"):
        DiskScoreCache.open(text / FILE, max_rows=100)


def test_a_broken_file_is_refused_with_one_clear_line(tmp_path: Path) -> None:
    stored = DiskScoreCache.open(tmp_path, max_rows=10_000)
    for n in range(5000):
        stored.keep(number(n), score(n))
    stored.close()
    with (tmp_path / FILE).open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 60_000)
    with pytest.raises(BadInputError, match=FILE) as caught:
        DiskScoreCache.open(tmp_path, max_rows=10_000)
    assert "\n" not in str(caught.value)


ENDING = """
import sys
from pathlib import Path
from assay.score import Score
from assay_serving.server.cache.disk_cache import DiskScoreCache

stored = DiskScoreCache.open(Path(sys.argv[1]), max_rows=10_000)
for n in range(5000):
    stored.keep(n.to_bytes(32, "big"), Score(float(n), "rm", "v1", "t1", 7, truncated=False))
sys.exit("an error somewhere else")
"""


def test_a_process_that_ends_by_an_error_writes_what_waited(tmp_path: Path) -> None:
    process = spawn(ENDING, str(tmp_path))
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors.splitlines()) == (1, ["an error somewhere else"])
    stored = DiskScoreCache.open(tmp_path, max_rows=10_000)
    assert len(find(stored, *(n.to_bytes(32, "big") for n in range(5000)))) == 5000
    stored.close()
    stored.close()


FILLING = """
import asyncio, json, logging, resource, sys
from pathlib import Path
from assay.score import Score
from assay_serving.server.cache.score_cache import ScoreCache
from assay_serving.server.core.settings import ServerSettings

logging.basicConfig(format="LOGGED %(message)s", stream=sys.stdout)
cache = ScoreCache.of(ServerSettings(cache_path=sys.argv[1], cache_entries=100_000))
size = (Path(sys.argv[1]) / "scores.duckdb").stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 200_000, size + 200_000))
for n in range(20_000):
    cache.put(n.to_bytes(32, "big"), Score(float(n), "rm", "v1", "t1", 7, truncated=False))
stored = cache._disk
while stored._waiting:
    pass
assert cache.get((19_999).to_bytes(32, "big")).reward == 19_999.0
for _ in range(3):
    cache.put(b"x" * 32, Score(1.0, "rm", "v1", "t1", 7, truncated=False))
    print("found", len(asyncio.run(cache.fetch([b"y" * 32]))))
cache.close()
print("closed")
"""


@pytest.mark.slow
def test_a_disk_that_fills_up_is_logged_once_and_costs_only_this_tier(tmp_path: Path) -> None:
    """The file may not grow past a limit of the process: as on a full disk, writing fails."""
    process = spawn(FILLING, str(tmp_path))
    said, errors = process.communicate(timeout=PATIENCE_S)
    lines = said.splitlines()
    assert process.returncode == 0, errors
    assert [line for line in lines if not line.startswith("LOGGED")] == ["found 0"] * 3 + ["closed"]
    logged = [line for line in lines if line.startswith("LOGGED")]
    assert len(logged) == 1
    assert "memory only" in logged[0]
    assert str(tmp_path) in logged[0]


def test_memory_and_disk_are_one_cache(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored = DiskScoreCache.open(tmp_path, max_rows=100)
    cache = ScoreCache(entries=2, max_bytes=1 << 20, disk=stored)
    for n in range(10):
        cache.put(number(n), score(n))
    assert cache.on_disk([number(n) for n in (0, 5, 500)]) == [number(0), number(5)]

    async def look() -> None:
        async def all_there() -> bool:
            return len(await cache.fetch([number(n) for n in range(10)])) == 10

        async with asyncio.timeout(PATIENCE_S):
            while not await all_there():
                await asyncio.sleep(0.05)

    asyncio.run(look())
    assert cache.get(number(9)) == score(9)  # what was found is in memory again
    cache.close()
    with caplog.at_level(logging.ERROR):
        assert asyncio.run(cache.fetch([number(1)])) == {}
