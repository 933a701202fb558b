"""Firefox for tests, spoken to by WebDriver BiDi (https://w3c.github.io/webdriver-bidi/): no geckodriver in between.

Covers: starting Debian's or Mozilla's binary with a profile of its own, opening addresses, keys, clicks, what is shown.
Leaves out: what Playwright has beside that; the tests of pages run in Chromium (`web_pages`).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from web_pages import PATIENCE_S
from websockets.sync.client import ClientConnection, connect

LISTENING = "WebDriver BiDi listening on "


class FirefoxTab:
    """One tab. `errors`: what its pages threw or could not load."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._asked = 0
        self.errors: list[str] = []
        self.ask("session.new", capabilities={})
        self.ask("session.subscribe", events=["log.entryAdded"])
        self._context = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": parameters}))
        while True:
            reply: dict[str, Any] = json.loads(self._socket.recv(timeout=PATIENCE_S))
            if reply.get("method") == "log.entryAdded" and reply["params"]["level"] == "error":
                self.errors.append(reply["params"]["text"])
            if reply.get("id") == self._asked:
                if reply["type"] == "error":
                    raise AssertionError(f"{method}: {reply['message']}")
                result: dict[str, Any] = reply["result"]
                return result

    def open(self, url: str) -> None:
        self.ask("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression that is a string, number or boolean, awaited."""
        reply = self.ask("script.evaluate", expression=expression, target={"context": self._context}, awaitPromise=True)
        assert reply["type"] == "success", reply
        return reply["result"].get("value")

    def wait_for(self, expression: str) -> Any:
        """Its value once that is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not (value := self.evaluate(expression)):
            assert time.monotonic() < deadline, f"{expression} never came; {self.evaluate('document.body.innerText')}"
            time.sleep(0.05)
        return value

    def wait_for_text(self, text: str) -> None:
        self.wait_for(f"document.body.innerText.includes({json.dumps(text)})")

    def press(self, keys: str) -> None:
        """Each key down and up, where the focus is."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        sequence = {"type": "key", "id": "keyboard", "actions": actions}
        self.ask("input.performActions", context=self._context, actions=[sequence])

    def click(self, selector: str) -> None:
        """The first element that a CSS selector names, once it is there."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait_for(f"{found} !== null")
        x, y = json.loads(
            self.evaluate(
                f"(() => {{ const at = {found}.getBoundingClientRect();"
                "return JSON.stringify([at.x + at.width / 2, at.y + at.height / 2].map(Math.round)); })()"
            )
        )
        steps = [{"type": "pointerMove", "x": x, "y": y}, {"type": "pointerDown", "button": 0}]
        sequence = {"type": "pointer", "id": "mouse", "actions": [*steps, {"type": "pointerUp", "button": 0}]}
        self.ask("input.performActions", context=self._context, actions=[sequence])


@contextmanager
def firefox() -> Iterator[FirefoxTab]:
    """Skips without Firefox."""
    binary = shutil.which("firefox-esr") or shutil.which("firefox")
    if binary is None:
        pytest.skip("no Firefox binary (apt-get install firefox-esr)")
    with tempfile.TemporaryDirectory() as profile:
        command = [binary, "--headless", "--no-remote", "--profile", profile, "--remote-debugging-port", "0"]
        log = Path(profile) / "said"
        with (
            log.open("w") as said,
            subprocess.Popen([*command, "about:blank"], stdout=said, stderr=said) as process,
        ):
            try:
                with connect(f"{_address(log, process)}/session", max_size=None) as socket:
                    tab = FirefoxTab(socket)
                    yield tab
                    assert not tab.errors, tab.errors
            finally:
                process.terminate()
                process.wait(30)


def _address(log: Path, process: subprocess.Popen[bytes]) -> str:
    deadline = time.monotonic() + PATIENCE_S
    while LISTENING not in (said := log.read_text()):
        assert process.poll() is None, f"Firefox did not start: {said[-2000:]}"
        assert time.monotonic() < deadline, f"Firefox did not start: {said[-2000:]}"
        time.sleep(0.1)
    return said.partition(LISTENING)[2].split()[0]
