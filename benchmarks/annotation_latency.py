"""How long a vote takes to be stored and the next item to come: 20 people over HTTP on loopback, one in Chromium.

A real server (`assay web --open`) on real conversations (Anthropic HH), overlap 3, a tenth gold checks. Each vote is
durable in the journal before its reply, which brings the next item. Two paces: realistic (each looks at an item for 3 s
on average, exponentially; people in fact take 10 s and more) and flat out. Every person also asks for the live figures
every 5 s. In the browser the time runs from the key's event to the frame after the next item was painted, while 19
others vote at the realistic pace, and flat out. The rounds take turns with all of these, which takes some four minutes.
The peer is the requirement: 150 ms / p95, so that more than 1 holds it.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from annotation_people import Voted, drive
from assay.store.records import Decision, insert_decisions
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig
from hh_pairs import FILES, data_folder
from measure import Report, Spread, arguments, decided, interleaved
from servers import free_port, server

MEASURES = (
    "platform/assay/annotation",
    "platform/assay/store",
    "pipelines/assay_pipelines/annotation",
    "web/assay_web/annotate",
    "web/assay_web/server",
)

LIMIT_MS = 150.0
PEOPLE = 20
THINK_S = 3.0
GOLD = 200
KEYS = 32  #: pressed in the browser in a round
BETWEEN_KEYS_S = 0.4
SHARES = (0.5, 0.95, 0.99)


def make_queues(root: Path, names: list[str]) -> Workspace:
    """A workspace of the shared HH pairs, and a queue of all of them for each round."""
    workspace = Workspace.create(root)
    for name in FILES:
        run_import(workspace, open_import(workspace, ImportConfig(str(data_folder() / f"{name}.jsonl.gz"))))
    with workspace.store.unit() as db:
        pair_ids = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]
        insert_decisions(db, [Decision(c, "gold", "A", "people_majority", "known") for c in pair_ids[:GOLD]], None)
    for name in names:
        items = [QueueItem(comparison, reason="judges disagree") for comparison in pair_ids[GOLD:]]
        create_queue(workspace, name, items, overlap=3, gold_checks=0.1, run_id=None, guideline="Prefer what helps.")
    return workspace


#: Runs in the page: one entry a key press, ms from the key's event to the frame after the next texts are there.
WATCH = """() => {
  window.painted = [];
  let pressed = null;
  document.addEventListener("keydown", (event) => { if (event.key === "b") pressed = event.timeStamp; }, true);
  const shown = () => document.querySelector('[aria-label="Response A"]')?.textContent;
  let before = shown();
  new MutationObserver(() => {
    const now = shown();
    if (pressed === null || now === undefined || now === before) return;
    const from = pressed;
    pressed = null; before = now;
    requestAnimationFrame(() => setTimeout(() => window.painted.push(performance.now() - from)));
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


def painted(url: str, queue: str, person: str, keys: int) -> list[float]:
    """Milliseconds from key to painted of one person in Chromium. Ends the script, saying so, without one."""
    from playwright.sync_api import sync_playwright

    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if binary is None:
        sys.exit("no Chromium binary (apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(base_url=url, viewport={"width": 1280, "height": 800})
        page.context.request.post("/api/session", data={"name": person})
        page.goto(f"/annotate/queue/{queue}")
        page.get_by_label("Response A").wait_for()
        page.evaluate(WATCH)
        for number in range(keys):
            page.wait_for_timeout(1000 * BETWEEN_KEYS_S)
            page.keyboard.press("b")
            page.wait_for_function("n => window.painted.length > n", arg=number, timeout=30_000)
        latencies: list[float] = page.evaluate("window.painted")
        browser.close()
    return latencies


def painted_among_others(url: str, queue: str, keys: int, number: int, think_s: float) -> list[float]:
    """`painted` while the others vote at this pace, from before the first key until after the last."""
    seconds = keys * (BETWEEN_KEYS_S + 0.2) + 5  # starting Chromium, and up to 200 ms a key
    with ThreadPoolExecutor(1) as pool:
        voting = pool.submit(drive, url, queue, people=PEOPLE - 1, seconds=seconds, think_s=think_s, seed=99 + number)
        latencies = painted(url, queue, f"in the browser {number}", keys)
        voting.result()
    return latencies


def percentile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def spreads(rounds: list[Voted]) -> dict[str, Any]:
    figures: dict[str, Any] = {
        f"p{int(100 * share)}_ms": str(Spread.of([1000 * r.percentile(share) for r in rounds])) for share in SHARES
    }
    figures["votes"] = sum(len(r.latencies) for r in rounds)
    figures["votes_per_s"] = str(Spread.of([r.votes_per_s for r in rounds]))
    figures["live_p95_ms"] = str(Spread.of([1000 * percentile(r.live, 0.95) for r in rounds]))
    return figures


def main() -> None:
    options = arguments(__doc__ or "").parse_args()
    rounds, realistic_s, flat_out_s = (3, 5.0, 4.0) if options.quick else (3, 24.0, 12.0)
    keys = KEYS // 4 if options.quick else KEYS
    report = Report("annotation_latency", measures=MEASURES)
    paces = {"realistic": THINK_S, "flat-out": 0.0}
    names = [f"{kind}-{n}" for pace in paces for kind in (pace, f"browser-{pace}") for n in range(rounds)]
    voted: dict[str, list[Voted]] = {"realistic": [], "flat-out": []}
    seen: dict[str, list[list[float]]] = {"realistic": [], "flat-out": []}
    with tempfile.TemporaryDirectory() as scratch:
        workspace = make_queues(Path(scratch) / "workspace", names)
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "assay", "web", "--open", "--port", str(port)]
        with server([*command, "--workspace", workspace.root], url, "/api/session"):

            def voting(pace: str, think: float) -> None:
                number = len(voted[pace])
                queue, seconds = f"{pace}-{number}", realistic_s if think else flat_out_s
                voted[pace].append(drive(url, queue, people=PEOPLE, seconds=seconds, think_s=think, seed=number))
                seen[pace].append(painted_among_others(url, f"browser-{queue}", keys, number, think))

            interleaved({pace: partial(voting, pace, think) for pace, think in paces.items()}, rounds, options)
    for pace, latencies in voted.items():
        p95 = [1000 * r.percentile(0.95) for r in latencies]
        report.ratios[f"{LIMIT_MS:.0f} ms / p95, {PEOPLE} people, {pace}"] = decided([LIMIT_MS / p for p in p95])
        report.figures[pace] = spreads(latencies)
        report.figures[f"{pace}_failures"] = sum(r.failures for r in latencies)
    for pace, rounds_seen in seen.items():
        report.ratios[f"{LIMIT_MS:.0f} ms / p95, key to painted in Chromium, {pace}"] = decided(
            [LIMIT_MS / percentile(times, 0.95) for times in rounds_seen]
        )
        report.figures[f"painted_{pace}"] = {
            f"p{int(100 * share)}_ms": str(Spread.of([percentile(times, share) for times in rounds_seen]))
            for share in SHARES
        } | {"keys_a_round": keys}
    report.limits = dict.fromkeys(report.ratios, 1.0)
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


if __name__ == "__main__":
    main()
