"""A workspace with content worth looking at, filled by the product's own commands: what pictures of the pages show.

All texts were written for it: `showcase_pairs.jsonl`, `showcase_exam.csv`, and the exercises below. Annotators of the
curation loop are simulated; reward models are heads on SmolLM2, so their figures are what they are.
"""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from web_pages import signed_in

from assay.cli.main import main
from assay.workspace import Workspace
from assay_serving.model_config import ModelConfig

PAIRS = Path(__file__).with_name("showcase_pairs.jsonl")
EXAM = Path(__file__).with_name("showcase_exam.csv")
EXERCISES = 210
GUIDELINE = "Prefer what helps this person most: right first, then clear, then short. Code must run."
PRINCIPLES = ("is correct", "says what it is unsure of")


def assay(workspace: Workspace, *arguments: object) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments), "-w", str(workspace.root)])
    assert ended.value.code in (0, None), arguments


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def pairs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


def exercise(n: int, chance: random.Random) -> dict[str, Any]:
    """One of three kinds; every eighth has the wrong label, as sources have."""
    a, b, c = chance.randrange(12, 90), chance.randrange(3, 12), chance.randrange(20, 80)
    kind = ("arithmetic", "units", "percentages")[n % 3]
    if kind == "arithmetic":
        question = f"A box holds {a} screws. How many are in {b} boxes, when {c} of them are taken out?"
        good = f"{b} boxes hold {a} x {b} = {a * b} screws. Without the {c} there are {a * b - c}."
        bad = f"{a} + {b} - {c} = {a + b - c} screws."
    elif kind == "units":
        question = f"How many metres does a cyclist ride in {b} minutes at {a} km/h?"
        good = f"{a} km/h is {1000 * a / 60:.1f} metres a minute, so {1000 * a / 60 * b:,.0f} metres."
        bad = f"{a} times {b}: {a * b} metres."
    else:
        question = f"A bill of {a} euros rises by {b} % in each of two years. What is it then, to the cent?"
        good = f"{a} x 1.{b:02}^2 = {a * (1 + b / 100) ** 2:.2f} euros: the second rise is on the first one's result."
        bad = f"Twice {b} % is {2 * b} %, so {a * (1 + 2 * b / 100):.2f} euros."
    chosen, rejected = (bad, good) if n % 8 == 4 else (good, bad)
    return {"id": f"drill-{n:03}", "prompt": question, "chosen": chosen, "rejected": rejected, "category": kind}


def drills() -> list[dict[str, Any]]:
    chance = random.Random(7)
    return [exercise(n, chance) for n in range(EXERCISES)]


def good_answers() -> list[str]:
    """What careful people prefer."""
    right = [row["rejected" if n % 8 == 4 else "chosen"] for n, row in enumerate(drills())]
    return [row["chosen"][0]["content"] for row in pairs()] + right


def exam() -> list[dict[str, Any]]:
    """Items as RM-Bench has them: three right and three wrong responses in rising style."""
    with EXAM.open(encoding="utf-8", newline="") as file:
        questions = [tuple(row.values()) for row in csv.DictReader(file)]
    for a, b, c in ((2, 3, 4), (5, 6, 2), (7, 2, 8), (9, 4, 3), (1, 8, 6), (6, 7, 5)):
        right, wrong = str(a + b * c), str((a + b) * c)
        question, first = f"What is {a} + {b} x {c}?", f"{b} x {c} = {b * c} comes first, then {a} is added"
        questions.append(("math", question, right, first, wrong, f"{a} + {b} = {a + b} comes first, times {c}"))
    return [
        {
            "id": n,
            "domain": domain,
            "prompt": question,
            "chosen": styles(question, right, why),
            "rejected": styles(question, wrong, mistake),
        }
        for n, (domain, question, right, why, wrong, mistake) in enumerate(questions)
    ]


def styles(question: str, answer: str, reason: str) -> list[str]:
    return [
        f"{answer}.",
        f"The answer to your question is this: {answer}. {reason}. If you want to know more about it, just ask.",
        f"## Answer\n\n**{answer}**\n\n## Why\n\n- You asked: {question}\n- {reason}.",
    ]


def fill(workspace: Workspace, folder: Path) -> None:
    """Two sources that contradict each other here and there, hygiene, a loop of people and judges, a loop to begin."""
    exercises = drills()
    for n in range(5):  # nearly the same, as scraped sets have them
        again = exercises[30 * n + 1]
        exercises.append({**again, "id": f"drill-{EXERCISES + n}", "chosen": f"{again['chosen']} I hope this helps!"})
    desk = pairs()
    other_way = [
        {**row, "id": f"s-{n}", "chosen": row["rejected"], "rejected": row["chosen"]} for n, row in enumerate(desk[:6])
    ]
    assay(workspace, "data", "import", written(folder / "help-desk.jsonl", desk), "--source", "help-desk")
    assay(workspace, "data", "import", written(folder / "survey.jsonl", other_way), "--source", "survey")
    torn = [{"prompt": "A row without responses"}] * 3
    assay(workspace, "data", "import", written(folder / "drills.jsonl", [*exercises, *torn]), "--source", "drills")
    assay(workspace, "data", "clean")
    questions = written(folder / "bench.jsonl", [{"prompt": row["prompt"]} for row in exercises[:40:8]])
    assay(workspace, "data", "benchmarks", "add", "word-problems", questions)
    assay(workspace, "data", "decontaminate")
    assay(workspace, "data", "near-dup", "--threshold", "0.7", "--action", "discard")

    loops = workspace.root / "loops"
    loops.mkdir()
    person = {"kind": "simulated", "truth": "source", "name": "mara", "accuracy": 0.95}
    written(loops / "people.yaml", [{"judges": [person]}])
    fair = [{**person, "name": name, "accuracy": right} for name, right in (("judge-small", 0.8), ("judge-large", 0.9))]
    hasty = {**person, "name": "judge-hasty", "accuracy": 0.7, "position_bias": 0.7, "both_orders": True}
    written(loops / "judges.yaml", [{"judges": [*fair, hasty]}])
    endpoint_config = {"kind": "openai", "base_url": "http://127.0.0.1:9/v1", "price_in": 0.6, "price_out": 2.4}
    written(loops / "priced.yaml", [{"judges": [{**endpoint_config, "model": "judge-large"}]}])
    loop = {
        "name": "spring",
        "iterations": 2,
        "seed": 40,
        "per_iteration": 24,
        "judges": "judges.yaml",
        "encoder": "hashing",
        "model": {"base": "tiny", "max_length": 512, "device": "cpu", "backend": "probe"},
        "people": {"seed": 24, "per_iteration": 10, "queue": False, "judges": "people.yaml"},
    }
    written(loops / "spring.yaml", [loop])
    written(loops / "autumn.yaml", [{**loop, "name": "autumn", "judges": "priced.yaml", "max_cost": 5.0}])
    assay(workspace, "curate", "stage1", loops / "spring.yaml")


def desk_ids(workspace: Workspace) -> list[str]:
    """The comparisons of `showcase_pairs.jsonl`, in its order."""
    query = "SELECT comparison_id FROM origins WHERE record_id LIKE 'desk-%' ORDER BY record_id"
    with workspace.store.unit() as db:
        return [row[0] for row in db.execute(query).fetchall()]


def vote(url: str, queue: str, person: str, likes: dict[str, float], most: int) -> None:
    """A person's sitting: the response that `likes` more, at most `most` items."""
    with signed_in(url, person) as client:
        reply = client.post(f"/api/annotate/queues/{queue}/item").json()
        for n in range(most):
            if (item := reply["item"]) is None:
                return
            first, second = (likes.get(item[rank], 0.0) for rank in ("first", "second"))
            choice = "first" if first > second else "second" if second > first else "tie"
            body = {
                "person": person,
                "ticket": item["ticket"],
                "seal": item["seal"],
                "choice": choice,
                "strength": None if choice == "tie" else n % 3 + 1,
                "seconds": 14.0 + 7 * (n % 5),
                "rationale": "The other one is wrong." if n % 4 == 0 else "",
            }
            sent = client.post(f"/api/annotate/queues/{queue}/votes", json=body)
            assert sent.status_code == 200, sent.text
            reply = sent.json()["next"]


@contextmanager
def reward_models(workspace: Workspace, folder: Path) -> Iterator[dict[str, Any]]:
    """Two heads on SmolLM2, one from exercises and one from the help desk too, their ensemble, a benchmark of both."""
    from assay_serving.model_loader import load_scorer

    at = ("--device", "cpu", "--waive-contamination", "word-problems=exercises, not the benchmark")
    pools = [flag for pool in ("unverified", "gold", "silver") for flag in ("--pool", pool)]
    assay(workspace, "data", "snapshot", "drills", *pools, "--category", "arithmetic")
    assay(workspace, "data", "snapshot", "desk", *pools, "--source", "help-desk")
    assay(workspace, "train", "probe", "--base", "smollm2", "--data", "drills", "--name", "helpful-v1", *at)
    assay(workspace, "train", "probe", "--base", "smollm2", "--data", "desk", "--name", "helpful-v2", *at)
    both = ("helpful-v1", "helpful-v2")
    for name, data in zip(both, ("drills", "desk"), strict=True):  # what each learned from; else v1 is at chance
        assay(workspace, "calibrate", "--model", name, "--data", data, "--method", "temperature", "--device", "cpu")
    assay(workspace, "ensemble", *both, "--data", "desk", "--name", "helpful-both", "--device", "cpu")
    file = written(folder / "exam.jsonl", exam())
    models = [flag for name in both for flag in ("--model", name)]
    assay(workspace, "eval", "--bench", "rm-bench", "--path", file, *models, "--device", "cpu")
    yield {
        name: load_scorer(ModelConfig(str(workspace.models / name), device="cpu")) for name in (*both, "helpful-both")
    }
