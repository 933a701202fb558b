import i18next from "i18next";
import { expect, test } from "vitest";

import { t } from ".";

test("English is the key, in its form for the number, with values in it", () => {
  i18next.addResourceBundle("en", "translation", { "{{count}} fixtures_one": "{{count}} fixture" }, true, true);
  expect(t("{{count}} fixtures", { count: 1 })).toBe("1 fixture");
  expect(t("{{count}} fixtures", { count: 3 })).toBe("3 fixtures");
  expect(t("Rules: a.b for {{name}}", { name: "<b>" })).toBe("Rules: a.b for <b>");
});
