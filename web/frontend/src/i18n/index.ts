import i18next from "i18next";

import english from "./en.json";

/** Languages of the interface. A further one is a folder of catalogues beside `de` and a line here. */
export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
export type Language = keyof typeof LANGUAGES;

/** Catalogues other than English, loaded when they are chosen: a file an area, English text -> translation. */
const CATALOGUES: Record<Exclude<Language, "en">, () => Promise<{ default: Record<string, string> }>> = {
  de: () => import("./de"),
};

const STORED = "assay.language";

// English texts are the keys, so they may hold dots and colons. A text with a count has a form for each number:
// t("{{count}} votes", { count: 1 }) takes "{{count}} votes_one" of the language's catalogue, English's too.
void i18next.init({
  lng: "en",
  fallbackLng: "en",
  keySeparator: false,
  nsSeparator: false,
  interpolation: { escapeValue: false }, // React escapes
  returnEmptyString: false,
  initAsync: false,
  resources: { en: { translation: english } },
});

/** The text in the person's language; `{{name}}` stands for a value. Called while something is drawn, not before. */
export const t = i18next.t.bind(i18next);

export function language(): Language {
  return i18next.language as Language;
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
