import i18next, { type FormatterModule } from "i18next";
import { initReactI18next } from "react-i18next";

import english from "./en.json";

/** Languages of the interface. A further one is a folder of catalogues beside `de` and a line here. */
export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;

/** Catalogues other than English, loaded when they are chosen: a file an area, English text -> translation. */
const CATALOGUES: Record<Exclude<Language, "en">, () => Promise<{ default: Record<string, string> }>> = {
  de: () => import("./de"),
};

const STORED = "assay.language";

const numbers = new Map<string, Intl.NumberFormat>();

/** A number as the person's language writes it. */
export function numberText(value: number, options: Intl.NumberFormatOptions = {}): string {
  const key = `${i18next.language}${JSON.stringify(options)}`;
  let format = numbers.get(key);
  if (format === undefined) numbers.set(key, (format = new Intl.NumberFormat(i18next.language, options)));
  return format.format(value);
}

// Numbers within texts: t("{{count}} rows", { count: 1234 }) is "1,234 rows", "1.234 Zeilen".
const formatter: FormatterModule = {
  type: "formatter",
  init: () => undefined,
  add: () => undefined,
  addCached: () => undefined,
  format: (value) => (typeof value === "number" ? numberText(value) : value),
};

// English texts are the keys, so they may hold dots and colons. A text with a count has a form for each number:
// t("{{count}} votes", { count: 1 }) takes "{{count}} votes_one" of the language's catalogue, English's too.
void i18next.use(formatter).use(initReactI18next).init({
  lng: "en",
  fallbackLng: "en",
  keySeparator: false,
  nsSeparator: false,
  interpolation: { escapeValue: false, alwaysFormat: true }, // React escapes
  returnEmptyString: false,
  initAsync: false,
  resources: { en: { translation: english } },
});

/** The text in the person's language; `{{name}}` stands for a value. Called while something is drawn, not before. */
export const t = i18next.t.bind(i18next);

/** Marks a text of a table of words, which is made when its module is loaded, for `t(WORDS[name])` where it is drawn. */
export const textKey = (english: string): string => english;

export function language(): Language {
  return i18next.language as Language;
}

/** How dates are written: English the British way. */
export function locale(): string {
  return i18next.language === "en" ? "en-GB" : i18next.language;
}

/** The stored choice, else the browser's first known language, else English. */
export function preferredLanguage(): Language {
  const known = (name: string | null): name is Language => name !== null && name in LANGUAGES;
  const stored = window.localStorage.getItem(STORED);
  if (known(stored)) return stored;
  return navigator.languages.map((name) => name.split("-")[0] ?? null).find(known) ?? "en";
}

/** Load a language's catalogue and use it; what has been drawn already stays until it is drawn again. */
export async function loadLanguage(name: Language): Promise<void> {
  if (name !== "en" && !i18next.hasResourceBundle(name, "translation"))
    i18next.addResourceBundle(name, "translation", (await CATALOGUES[name]()).default);
  await i18next.changeLanguage(name);
  document.documentElement.lang = name;
}

/** Remember the choice and show the page in it. */
export function chooseLanguage(name: Language): void {
  window.localStorage.setItem(STORED, name);
  window.location.reload(); // drafts and unsent votes are in the browser's store
}
