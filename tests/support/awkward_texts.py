"""Texts that pages and judges must stand: long, right to left, without spaces, code, wide tables, TeX, hostile.

    python tests/support/awkward_texts.py FOLDER    # a workspace to be shown by `assay web -w FOLDER --open`

Each is a pair in a queue named for it, with principles and a guideline; questions on single responses have queues too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from annotating import ATTRIBUTES

from assay.workspace import Workspace
from assay_pipelines.annotation.items import QueueItem
from assay_pipelines.annotation.question_types.rating import AnnotationScale
from assay_pipelines.annotation.queues import create_queue
from assay_pipelines.annotation.tasks import TaskQuestion, create_task_queue, named_tasks
from assay_pipelines.importers.run import open_import, run_import
from assay_pipelines.importers.source import ImportConfig

PYTHON = """\
def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2"""
C = """\
#include <stdio.h>

int main(void) {
    for (int i = 0; i < 3; i++) {
        printf("%d * %d = %d\\n", i, i, i * i);
    }
    return 0;
}"""
JSON = """\
{
  "name": "assay",
  "versions": [1, 2, 3],
  "nested": {
    "a_b_c": "*not emphasis*"
  }
}"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/srv/app/main.py", line 12, in <module>
    run(*args, **kwargs)
  File "/srv/app/run.py", line 40, in run
    raise ValueError("no such __name__")
ValueError: no such __name__"""
TABLE = "\n".join(
    "| " + " | ".join(cells) + " |"
    for cells in (
        [f"column {n}" for n in range(40)],
        ["---"] * 40,
        *[[f"{row * column}.25" for column in range(40)] for row in range(1, 8)],
    )
)
ARABIC = "ما هي عاصمة فرنسا؟ أجب في جملة واحدة، واذكر عدد السكان (2.1 مليون) و URL مثل https://example.org/a?b=1."
HEBREW = "שלום! הנה רשימה:\n\n1. ראשון (abc)\n2. שני: 3 + 4 = 7\n\n> ציטוט קצר\n\nוגם `code()` באמצע."
MIXED = "English first.\n\nثم فقرة بالعربية مع كلمة English.\n\n- بند أول\n- بند ثان: 12%\n\nAnd English again."
CHINESE = "机器学习模型的奖励函数需要仔细设计，否则策略会找到漏洞。" * 12
JAPANESE = (
    "報酬モデルは、人間の好みを学習するために使われます。\n\n- 第一に、データを集めます。\n- 第二に、比較します。\n\n"
    * 3
)
PARAGRAPH = "Sort the list first, then compare each element with its neighbour, and keep the ones that differ. "
LONG = "\n\n".join(f"**Part {n}.** " + PARAGRAPH * 5 for n in range(1, 25))
TEX = (
    "By parts, $\\int_0^1 x e^x\\,dx = 1$.\n\n\\[\\sum_{k=1}^{n} k^2 = \\frac{n(n+1)(2n+1)}{6} + "
    + " + ".join(f"a_{{{n}}}x^{{{n}}}" for n in range(40))
    + "\\]\n\nA broken one: $\\frac{1$ costs $5, not $10."
)
HOSTILE = (
    "<script>document.title='ran'</script>\n\n<img src=x onerror=\"document.title='ran'\">\n\n"
    "[a link](javascript:document.title='ran') ![a picture](https://evil.example/pixel.png)\n\n"
    "\u202eright to left override\u202c and \u2066an isolate that is never closed\n\n"
    + "Z\u0351\u036b\u0343\u034a\u0310a\u0337\u031b\u0349l\u0321\u0321g\u0335o\u0336 "
    + "w" * 400
    + "\n\n"
    + ">" * 40
    + " deep quote\n\n</div></div></main><style>*{display:none}</style>"
)

#: name -> prompt, and the two responses.
PAIRS: dict[str, tuple[str, str, str]] = {
    "long": (LONG[:6000], LONG, LONG[:5000]),
    "right-to-left": (ARABIC, HEBREW, MIXED),
    "cjk": (CHINESE[:120], CHINESE, JAPANESE),
    "code": (
        f"Why does this fail?\n\n{TRACEBACK}",
        f"Use this instead:\n\n{PYTHON}\n\nIt takes the middle. As JSON:\n\n{JSON}",
        f"In C:\n\n{C}\n\nCompile it with `cc -O2 a.c`.\n\n```python\nlong = "
        + " + ".join(f"value_{n}" for n in range(40))
        + "\n```",
    ),
    "table": ("Make a table of 40 columns.", f"Here it is:\n\n{TABLE}\n\nDone.", "| a | b |\n|---|---|\n| 1 | 2 |"),
    "tex": ("Integrate $x e^x$ from 0 to 1.", TEX, "It is $1$."),
    "hostile": (HOSTILE, HOSTILE, "Nothing of that ran."),
}
PRINCIPLES = ("is clear", "الإجابة صحيحة")
GUIDELINE = "Prefer what **helps**, what is *true*:\n\n1. Right first.\n2. Short before long.\n\nأعط الأولوية للدقة."


def fill(workspace: Workspace, folder: Path) -> None:
    """Import the pairs and make the queues."""
    seen: set[str] = set()
    for name, (prompt, chosen, rejected) in PAIRS.items():
        path = folder / f"{name}.jsonl"
        path.write_text(json.dumps({"prompt": prompt, "chosen": chosen, "rejected": rejected}) + "\n", encoding="utf-8")
        run_import(workspace, open_import(workspace, ImportConfig(str(path))))
        with workspace.store.unit() as db:
            rows = db.execute("SELECT comparison_id, response_a, response_b FROM comparisons").fetchall()
        ((comparison, first, second),) = [row for row in rows if row[0] not in seen]
        seen.add(comparison)
        items = [QueueItem(comparison, attributes=ATTRIBUTES, reason="judges disagree", principles=PRINCIPLES)]
        create_queue(workspace, name, items, overlap="all", gold_checks=0.0, run_id=None, guideline=GUIDELINE)
        if name in ("right-to-left", "code"):
            scales = (AnnotationScale("helpfulness"), AnnotationScale("truth", 0, 3))
            for kind in ("rating", "steps", "spans", "ranking"):
                question = TaskQuestion(kind, scales, ("slip", "style"))
                tasks = named_tasks(workspace, question, [first, second])
                create_task_queue(
                    workspace, f"{name}-{kind}", tasks, question, run_id=None, overlap="all", guideline=GUIDELINE
                )


if __name__ == "__main__":
    root = Path(sys.argv[1])
    fill(Workspace.create(root), root)
