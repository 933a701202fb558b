"""Two models of known skill behind an OpenAI-compatible endpoint, tasks and a warm start, to try `router_r1.yaml` with.

python examples/policy_training/routed_models.py FOLDER         # writes tasks.jsonl, held-out.jsonl, games.jsonl
python examples/policy_training/routed_models.py --serve 8801   # models small (adds), large (adds and multiplies)
"""

import json
import random
import re
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

ASK, TOLD, ANSWER = "<search>{}:{}</search>", "<information>{}</information>", "<answer>{}</answer>"


def answer_of(model: str, question: str) -> str:
    """What the model says: the small one takes every problem for a sum."""
    numbers = re.fullmatch(r"\s*(\d+)([+*])(\d+)\s*", question)
    if numbers is None:
        return "?"
    a, b = int(numbers[1]), int(numbers[3])
    return str(a * b if numbers[2] == "*" and model == "large" else a + b)


class Endpoint(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = answer_of(body["model"], body["messages"][-1]["content"])
        reply = {
            "object": "chat.completion",
            "model": body["model"],
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20},
        }
        payload = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: object) -> None:
        """Nothing: a line a request is too many."""


def write_rows(folder: Path, *, episodes: int = 1500) -> None:
    rng = random.Random(0)
    problems = [f"{a}{sign}{b}" for a in range(2, 10) for b in range(2, 10) for sign in "+*" if (a, b) != (2, 2)]
    rng.shuffle(problems)
    for name, part in (("held-out", problems[:40]), ("tasks", problems[40:])):
        rows = [json.dumps({"prompt": problem, "answers": [answer_of("large", problem)]}) for problem in part]
        (folder / f"{name}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    with (folder / "games.jsonl").open("w", encoding="utf-8") as stream:
        for _ in range(episodes):
            problem, model = rng.choice(problems[40:]), rng.choice(("small", "large"))
            told = answer_of(model, problem)
            turns = [{"role": "user", "content": problem}]
            asked = ASK.format(model, problem)
            stream.write(json.dumps({"prompt": turns, "completion": asked}) + "\n")
            turns += [{"role": "assistant", "content": asked}, {"role": "user", "content": TOLD.format(told)}]
            stream.write(json.dumps({"prompt": turns, "completion": ANSWER.format(told)}) + "\n")


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Endpoint).serve_forever()
    else:
        write_rows(Path(sys.argv[1]))
