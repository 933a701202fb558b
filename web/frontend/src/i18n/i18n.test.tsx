import { render } from "@testing-library/react";
import i18next from "i18next";
import { Trans } from "react-i18next";
import { afterEach, expect, test } from "vitest";

import { loadLanguage, preferredLanguage, t } from ".";
import { count } from "../format/count";
import { figure } from "../format/figure";
import { momentInWords } from "../format/moment";

afterEach(() => loadLanguage("en"));

test("English is the key, in its form for the number, with values in it", () => {
  i18next.addResourceBundle("en", "translation", { "{{count}} fixtures_one": "{{count}} fixture" }, true, true);
  expect(t("{{count}} fixtures", { count: 1 })).toBe("1 fixture");
  expect(t("{{count}} fixtures", { count: 3000 })).toBe("3,000 fixtures");
  expect(t("Rules: a.b for {{name}}", { name: "<b>" })).toBe("Rules: a.b for <b>");
});

test("numbers and dates are written as the language does, what has no translation stays English", async () => {
  await loadLanguage("de");
  expect(document.documentElement.lang).toBe("de");
  expect([t("Annotate"), t("No such text: {{count}}", { count: 1234.5 })]).toEqual(["Annotieren", "No such text: 1.234,5"]);
  expect([count(1234567), figure(-0.5, 2)]).toEqual(["1.234.567", "−0,50"]);
  expect(momentInWords(new Date(2026, 1, 3, 4, 5).getTime() / 1000)).toBe("03.02.2026, 04:05");
});

test("a value in a text with elements is no element", () => {
  const { container } = render(<Trans i18nKey="Signed in as <b>{{name}}</b>" values={{ name: "<b>x</b> & y" }} components={{ b: <b /> }} />);
  expect(container.innerHTML).toBe("Signed in as <b>&lt;b&gt;x&lt;/b&gt; &amp; y</b>");
});

test("the stored choice, else the browser's first known language, else English", () => {
  const browser = (...languages: string[]) => Object.defineProperty(navigator, "languages", { value: languages, configurable: true });
  browser("fr-FR", "de-AT");
  expect(preferredLanguage()).toBe("de");
  browser("fr");
  expect(preferredLanguage()).toBe("en");
  window.localStorage.setItem("assay.language", "de");
  expect(preferredLanguage()).toBe("de");
  Reflect.deleteProperty(navigator, "languages");
});
