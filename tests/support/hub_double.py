"""A model hub on loopback, as far as pushing asks of it: making a repository and a branch, uploads, commits.

Written after the requests of huggingface_hub 2.4 without Xet. Leaves out: downloads, tokens' rights.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Hub:
    """`files`: by repository and branch, of the commits. `private`: by repository. `tokens`: that were sent."""

    url: str = ""
    files: dict[tuple[str, str], dict[str, bytes]] = field(default_factory=dict)
    private: dict[str, bool] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    refuse: int = 0  #: the status with which commits are answered


@contextmanager
def running_hub() -> Iterator[Hub]:
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def answer(self, payload: Any, status: int = 200) -> None:
            content = json.dumps(payload).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            name, _, branch = self.path.partition("?")[0].removeprefix("/api/models/").partition("/tree/")
            if branch:
                files = hub.files.get((name, branch), {})
                self.answer([{"type": "file", "path": path, "size": 1, "oid": "0"} for path in files])
            else:
                self.answer({"id": name, "private": hub.private[name], "siblings": [], "tags": [], "downloads": 0})

        def do_PUT(self) -> None:
            hub.objects[self.path.rpartition("/")[2]] = self.body()
            self.answer({})

        def do_POST(self) -> None:
            hub.tokens.add(self.headers.get("Authorization", ""))
            content = self.body()
            path = self.path.partition("?")[0]
            if path == "/api/repos/create":
                body = json.loads(content)
                name = f"{body['organization']}/{body['name']}"
                hub.private.setdefault(name, body.get("private", body.get("visibility") == "private"))
                self.answer({"url": f"{hub.url}/{name}"})
            elif path == "/api/validate-yaml":
                self.answer({"errors": [], "warnings": []})
            elif found := re.fullmatch(r"/api/models/(.+)/branch/(.+)", path):
                hub.files[found[1], found[2]] = {}
                self.answer({})
            elif re.fullmatch(r"/api/models/(.+)/preupload/(.+)", path):
                names = [file["path"] for file in json.loads(content)["files"]]
                modes = {name: "lfs" if name.endswith(".safetensors") else "regular" for name in names}
                files = [{"path": name, "uploadMode": mode, "shouldIgnore": False} for name, mode in modes.items()]
                self.answer({"files": files})
            elif path.endswith("/info/lfs/objects/batch"):
                objects = json.loads(content)["objects"]
                actions = [
                    part | {"actions": {"upload": {"href": f"{hub.url}/objects/{part['oid']}"}}} for part in objects
                ]
                self.answer({"transfer": "basic", "objects": actions})
            elif target := re.fullmatch(r"/api/models/(.+)/commit/(.+)", path):
                if hub.refuse:
                    self.answer({"error": "no room"}, hub.refuse)
                    return
                committed = hub.files.setdefault((target[1], target[2]), {})
                for line in content.splitlines():
                    row = json.loads(line)
                    value = row["value"]
                    if row["key"] == "file":
                        committed[value["path"]] = base64.b64decode(value["content"])
                    elif row["key"] == "deletedFile":
                        committed.pop(value["path"])
                    elif row["key"] == "lfsFile":
                        committed[value["path"]] = hub.objects[value["oid"]]
                commit = "0" * 40
                self.answer(
                    {"commitUrl": f"{hub.url}/{target[1]}/commit/{commit}", "commitOid": commit, "success": True}
                )
            else:
                self.answer({"error": f"unknown: {path}"}, 404)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
