import { describe, expect, it } from "vitest";

import { withFences } from "./unfencedCode";

const PYTHON = `def median(values: list[float]) -> float:
    """Of numbers."""
    ordered = sorted(values)

    # the middle
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


print(median([1, 2]))`;
const SCRIPT = `import json
from pathlib import Path

# read it
data = json.loads(Path("a.json").read_text())
for name, value in data.items():
    print(name, value * 2)`;
const C = `#include <stdio.h>

int main(void) {
    for (int i = 0; i < 3; i++) {
        printf("%d * %d\\n", i, i);
    }

    return 0;
}`;
const SCRIPT_JS = `const total = (items) => {
  let sum = 0;
  for (const item of items) {
    sum += item.price * item.count;
  }
  return sum;
};`;
const JSON_TEXT = `{
  "name": "a_b_c",
  "list": [1, 2,
    {"x": "*no*"}]
}`;
const TRACEBACK = `Traceback (most recent call last):
  File "main.py", line 12, in <module>
    run(*args, **kwargs)
ValueError: no such __name__`;

describe("code without fences", () => {
  it.each([
    ["python", PYTHON],
    ["python", SCRIPT],
    ["cpp", C],
    ["javascript", SCRIPT_JS],
    ["json", JSON_TEXT],
    ["python", TRACEBACK],
  ])("of %s keeps every line between the sentences around it", (language, code) => {
    const text = `Here it is:\n${code}\n\nIt *works*, e.g. for 3 * 4.\n\n- a list`;
    expect(withFences(text)).toBe(`Here it is:\n\n\`\`\`${language}\n${code}\n\`\`\`\n\n\nIt *works*, e.g. for 3 * 4.\n\n- a list`);
    expect(withFences(code)).toBe(`\`\`\`${language}\n${code}\n\`\`\`\n`);
  });

  it("of several languages in one text is told apart", () => {
    const fenced = withFences(`Python:\n\n${PYTHON}\n\nIts settings:\n\n${JSON_TEXT}\n\nThe error:\n\n${TRACEBACK}\n\nThat is all.`);
    expect(fenced.match(/^```\w+$/gm)).toEqual(["```python", "```json", "```python"]);
    expect(fenced).toMatch(/```\n\n\nThat is all\.$/);
  });

  it.each([
    ["fences", `Before\n\n\`\`\`python\n${PYTHON}\n\`\`\`\n\nAfter`],
    ["tildes", `~~~\n${C}\n~~~`],
    ["fences in a list", `1. \`\`\`python\n${PYTHON}\n\`\`\`\n\n2. more`],
    ["equations", "a = b + 1\nc = 2 * a\nd = c - 4\n\nso d = 2b - 2."],
    ["a fence that is never closed", `\`\`\`\n${PYTHON}`],
    ["code that is indented already", PYTHON.split("\n").map((line) => `    ${line}`).join("\n")],
    ["lists after a condition", "if you want to be sure:\n  - look twice\n  - ask somebody"],
    ["lists", "for each of them in turn:\n\n1. look\n2. decide\n\n- one;\n- two;"],
    ["prose with signs", "import duties are high; export them.\nclass matters:\nso it is (really).\nfrom here on, it is easy;\nlet us see = fine"],
    ["headings and quotes", "# import json\n\n> def f():\n>     return 1\n\n| a | b |\n|---|---|\n| {x} | 1; |"],
    ["a list in brackets", "[1, 2, 3]\n\n[see here](https://example.org)\n[x] done"],
    ["TeX", "\\begin{aligned}\na &= b \\\\\n\\end{aligned}\n\n$$\n\\{x\\}\n$$"],
    ["poems", "with every breath as soft:\n  and in the night\n  she came"],
    ["advice", "if you are sure:\n  go on then\n  and tell us"],
    ["a letter", "Dear all,\n\nwhile we wait:\n\nplease read this.\n\nYours;\nAda"],
    ["braces in words", "{name} is what you write.\n{\nno json\n}"],
    ["one call", "print(x)\n\nprints it."],
  ])("is not seen in %s", (_, text) => {
    expect(withFences(text)).toBe(text);
  });

  it("takes no time that matters for long texts", () => {
    const text = "import this = (that) if x:\n for y { in z;\n".repeat(20_000);
    const start = performance.now();
    withFences(text);
    expect(performance.now() - start).toBeLessThan(2000);
  });
});
