import { readFileSync } from "node:fs";

import { screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { axe } from "vitest-axe";

import { renderAt } from "../testing/render";
import { Markdown } from "./Markdown";
import { delimited } from "./maths";

describe("Markdown", () => {
  it("shows HTML and scripts as they are written, and fetches nothing", async () => {
    const text = [
      "<script>window.ran = true</script>",
      '<img src="x" onerror="window.ran = true">',
      '<iframe src="https://evil.example"></iframe> and <b onclick="window.ran = true">bold</b>',
      "[link](javascript:window.ran=true) ![seen](https://evil.example/pixel.png)",
      "$\\href{javascript:window.ran=true}{x}$ $\\htmlStyle{position:fixed}{y}$",
    ].join("\n\n");
    const { container } = renderAt(<Markdown text={text} />);
    await waitFor(() => expect(container.querySelector(".katex")).not.toBeNull());
    for (const tag of ["script", "img", "iframe", "b"]) expect(container.querySelector(`.markdown ${tag}`)).toBeNull();
    expect(container).toHaveTextContent("<script>window.ran = true</script>");
    for (const link of container.querySelectorAll("a")) {
      expect(link.getAttribute("href") ?? "").not.toMatch(/^javascript/);
      expect(link.rel).toContain("noreferrer");
    }
    expect(container.innerHTML).not.toContain('style="position');
    expect(window).not.toHaveProperty("ran");
  });

  it("keeps the stars of products, in code and TeX too", async () => {
    const text = "15*20=300, then *really* 3*(4+1)=15 and **2*3**.\n\n    code 2*3\n\n`4*5*6` $7*8$";
    const { container } = renderAt(<Markdown text={text} />);
    expect(container).toHaveTextContent("15*20=300, then really 3*(4+1)=15 and 2*3.");
    expect([...container.querySelectorAll("code")].map((code) => code.textContent?.trim())).toEqual(["code 2*3", "4*5*6"]);
    expect([...container.querySelectorAll("em, strong")].map((marked) => marked.textContent)).toEqual(["really", "2*3"]);
    await waitFor(() => expect(container.querySelector("annotation")).toHaveTextContent("7*8"));
  });

  it("renders code with colours, tables, and maths in every delimiter", async () => {
    const text = [
      "# Title",
      "```python\nprint('$a$')\n```",
      "| a | b |\n|---|---|\n| 1 | 2 |",
      "- [x] done",
      "\\[ x^2 \\] and \\(y\\) and $z_1$",
    ].join("\n\n");
    const { container } = renderAt(<Markdown text={text} />);
    await waitFor(() => expect(container.querySelector("code.hljs .hljs-string")).toHaveTextContent("'$a$'"));
    expect(screen.getByRole("table")).toBeInTheDocument();
    await waitFor(() => expect(container.querySelectorAll(".katex").length).toBe(3));
    expect(screen.getAllByRole("group", { name: "Formula" }).map((one) => [one.className, one.tabIndex])).toEqual([["katex-display", 0]]);
    expect((await axe(container)).violations).toEqual([]);
  });

  it("draws formulas by the very version of KaTeX whose style is loaded", async () => {
    const { container } = renderAt(<Markdown text={"$\\frac{a}{b}$"} />);
    await waitFor(() => expect(container.querySelector(".katex-html")).not.toBeNull());
    const style = readFileSync("node_modules/katex/dist/katex.min.css", "utf8");
    const drawn = container.querySelectorAll(".katex-html, .katex-html > *, .katex-html > * > :first-child");
    expect(drawn.length).toBe(3);
    for (const part of drawn) expect(style).toMatch(new RegExp(`\\.${part.classList[0]}[ {>]`));
  });

  it("leaves prices and code alone", () => {
    for (const text of ["from $5 to $10", "`a $x$ b`", "```sh\necho $A $B$\n```", "costs $5", "$ x $", "\\$a\\$"]) {
      expect(delimited(text)).toBe(text);
    }
    expect(delimited("$x$, ```$y$``` and $$z$$")).toBe("$$x$$, ```$y$``` and $$z$$");
    expect(delimited("```\n$open$ fence")).toBe("```\n$open$ fence");
  });

  it("sets each part in its own direction, lists and quotes by their words", () => {
    const { container } = renderAt(<Markdown text={"שלום abc\n\n- אחת\n\n- two\n\n> مرحبا\n\n1. 3 + 4\n2. plain `קוד`\n\n| عنوان | b |\n|---|---|\n| 1 | 2 |\n\n```\nx = 'שלום'\n```"} />);
    const dirs = (tag: string) => [...container.querySelectorAll<HTMLElement>(`.markdown ${tag}`)].map((element) => element.dir);
    expect([dirs("ul"), dirs("ol"), dirs("blockquote"), dirs(".markdown-table"), dirs("pre")]).toEqual([["rtl"], ["ltr"], ["rtl"], ["rtl"], ["ltr"]]);
    expect(new Set([...dirs("p"), ...dirs("td"), ...dirs("th"), ...dirs("li > code")])).toEqual(new Set(["auto"]));
  });

  it("says what it does not draw, and keeps the lines of tags", () => {
    const { container } = renderAt(<Markdown text={"<answer>\n  <b>1</b>\n</answer>\n\nin <i>line</i> ![a cat](https://evil.example/cat.png)"} />);
    const tags = container.querySelector(".markdown-tags");
    expect(tags?.textContent).toBe("<answer>\n  <b>1</b>\n</answer>");
    expect(tags).toHaveAttribute("data-note", "Tags are shown as they are written");
    expect(container).toHaveTextContent("in <i>line</i> Image, not fetched: a cat");
  });

  it("draws code without fences as code", () => {
    const { container } = renderAt(<Markdown text={"Try:\ndef f(*args, **kwargs):\n    return __name__\n\nIt *works*."} />);
    expect(container.querySelector("pre code.language-python")?.textContent).toBe("def f(*args, **kwargs):\n    return __name__\n");
    expect(container.querySelector("em")).toHaveTextContent("works");
  });
});
