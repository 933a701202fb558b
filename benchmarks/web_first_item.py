"""What the first annotation item costs a newcomer on a slow line: kilobytes and seconds until it is seen in Chromium.

A real server (`assay web --open`) with one queue whose texts hold Markdown, code and formulas. Chromium is given
1.5 Mbit/s down and up and 100 ms latency (CDP, Network.emulateNetworkConditions: latency by request; handshakes and
slow start are not emulated), and a profile with nothing in it each round. Seconds run from the navigation to the frame
after the first response's text is there; bytes are those that have come by then, headers included, as the browser
counts them. What comes later (formulas, colours, the font) is a figure of its own. The peer is the requirement: 250 kB
and 2.5 s.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assay.store.intake import pair_schema, store_pairs
from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.queues import create_queue
from measure import Report, Spread, arguments, decided
from servers import free_port, server

MEASURES = (
    "web/frontend/src",
    "web/frontend/vite.config.ts",
    "web/assay_web/annotate",
    "web/assay_web/server",
)

if TYPE_CHECKING:
    from playwright.sync_api import Browser

LIMIT_BYTES, LIMIT_S = 250_000, 2.5
BITS_PER_S, LATENCY_MS = 1_500_000, 100
QUEUE = "first"
CODE = "\n\n```python\ndef area(r: float) -> float:\n    return 3.14159 * r**2\n```\n\n"
MATHS = "\n\nThe area is $A = \\pi r^2$, hence\n\n$$\\frac{dA}{dr} = 2 \\pi r$$\n\n"
TABLE = "| r | A |\n|---|---|\n| 1 | 3.14 |\n| 2 | 12.57 |\n"
#: Runs before the page's own script: ms from the navigation to the frame after the first response has a text.
WATCH = """
  const observer = new MutationObserver(() => {
    if (!document.querySelector('[aria-label="Response A"]')?.textContent.includes("circle")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.seen = performance.now(); }));
  });
  observer.observe(document, { subtree: true, childList: true, characterData: true });
"""


@dataclass(frozen=True)
class Visit:
    """One cold visit. `later_bytes`: until no request is open. `waited_for`: bytes by file, largest first."""

    seconds: float
    bytes: int
    later_bytes: int
    waited_for: dict[str, int]


def make_queue(root: Path) -> Workspace:
    workspace = Workspace.create(root)
    rows = [
        {
            "row": number,
            "messages": [{"role": "user", "content": f"How large is a circle of radius {number}?"}],
            "first": f"# A circle of radius {number}{MATHS}{CODE}{TABLE}",
            "second": f"It is a *large* circle: {number} squared times pi.{CODE}",
            "source": "s",
            "record_id": str(number),
        }
        for number in range(1, 31)
    ]
    with workspace.store.unit() as db:
        store_pairs(db, pa.Table.from_pylist(rows, schema=pair_schema()), None)
        comparisons = [row[0] for row in db.execute("SELECT comparison_id FROM comparisons ORDER BY 1").fetchall()]
    items = [QueueItem(comparison) for comparison in comparisons]
    guideline = "Prefer the answer that is **right** and shows how: $A = \\pi r^2$."
    create_queue(workspace, QUEUE, items, overlap=3, gold_checks=0.0, run_id=None, guideline=guideline)
    return workspace


def visit(browser: Browser, url: str, person: str) -> Visit:
    context = browser.new_context(base_url=url, viewport={"width": 1280, "height": 800})
    context.request.post("/api/session", data={"name": person})
    page = context.new_page()
    page.add_init_script(WATCH)
    chrome = context.new_cdp_session(page)
    pieces: list[tuple[float, str, int]] = []
    names: dict[str, str] = {}
    began: list[float] = []

    def asked(event: dict[str, Any]) -> None:
        names[event["requestId"]] = event["request"]["url"].removeprefix(url).split("?")[0]
        began.append(event["timestamp"])

    def came(event: dict[str, Any]) -> None:
        pieces.append((event["timestamp"], event["requestId"], int(event["encodedDataLength"])))

    def headers(event: dict[str, Any]) -> None:
        pieces.append((event["timestamp"], event["requestId"], int(event["response"]["encodedDataLength"])))

    chrome.on("Network.requestWillBeSent", asked)
    chrome.on("Network.responseReceived", headers)
    chrome.on("Network.dataReceived", came)
    chrome.send("Network.enable")
    speed = BITS_PER_S / 8
    line = {"offline": False, "latency": LATENCY_MS, "downloadThroughput": speed, "uploadThroughput": speed}
    chrome.send("Network.emulateNetworkConditions", line)
    page.goto(f"/annotate/queue/{QUEUE}", wait_until="commit")
    page.wait_for_function("() => window.seen !== undefined", timeout=120_000)
    seconds: float = page.evaluate("window.seen") / 1000
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(2500)
    context.close()
    files: dict[str, int] = {}
    for at, request, size in pieces:
        if at <= began[0] + seconds:
            files[names[request]] = files.get(names[request], 0) + size
    ordered = dict(sorted(files.items(), key=lambda file: -file[1]))
    before = sum(files.values())
    return Visit(seconds, before, sum(size for _, _, size in pieces) - before, ordered)


def main() -> None:
    from playwright.sync_api import sync_playwright

    options = arguments(__doc__ or "").parse_args()
    rounds = 5 if options.quick else 7
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    if binary is None:
        sys.exit("no Chromium binary (apt-get install chromium)")
    report = Report("web_first_item", measures=MEASURES)
    with tempfile.TemporaryDirectory() as scratch:
        workspace = make_queue(Path(scratch) / "workspace")
        port = free_port()
        url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "assay", "web", "--open", "--port", str(port), "-w", str(workspace.root)]
        with server(command, url, "/api/session"), sync_playwright() as playwright:
            visits = []
            for number in range(rounds):
                browser = playwright.chromium.launch(executable_path=binary, args=["--no-sandbox", "--disable-gpu"])
                visits.append(visit(browser, url, f"person {number}"))
                browser.close()
    report.ratios["250 kB / bytes until the first item is seen"] = decided([LIMIT_BYTES / v.bytes for v in visits])
    report.ratios["2.5 s / seconds until the first item is seen"] = decided([LIMIT_S / v.seconds for v in visits])
    report.limits = dict.fromkeys(report.ratios, 1.0)
    report.figures["kilobytes"] = str(Spread.of([v.bytes / 1000 for v in visits]))
    report.figures["seconds"] = str(Spread.of([v.seconds for v in visits]))
    report.figures["kilobytes_later"] = str(Spread.of([v.later_bytes / 1000 for v in visits]))
    report.figures["bytes_by_file"] = visits[-1].waited_for
    for name, value in report.figures.items():
        print(f"{name}: {value}")
    report.finish(options)


if __name__ == "__main__":
    main()
