import { t } from "../../../i18n";
import type { Option } from "../words";
import { positionOfCharacter } from "./positions";

/** Something that a single key does. `position`: of its key, unless its person chose another. */
export interface Action {
  id: string;
  position: string;
  /** In words, for the list of keys. */
  what: () => string;
}

const action = (id: string, character: string, what: () => string): Action => ({
  id,
  position: positionOfCharacter(character) ?? character,
  what,
});

/** Those of every session. */
export const SESSION = {
  skip: action("skip", "s", () => t("skip, then a key for the reason")),
  rationale: action("rationale", "r", () => t("write why; Escape back to the keys")),
  undo: action("undo", "u", () => t("undo the last vote; its item comes again")),
  plain: action("plain", "m", () => t("texts as they are written, without Markdown")),
  prompt: action("prompt", "o", () => t("open or close the prompt, wherever the page stands")),
  panel: action("panel", "\\", () => t("fold or show the panel beside the texts")),
  flag: action("flag", "f", () => t("tell the curators about this item")),
  answers: action("answers", "h", () => t("your answers so far, to be read or changed")),
  link: action("link", "l", () => t("copy the link to this item")),
  next: action("next", "Enter", () => t("on, where something is shown after a vote")),
  leave: action("leave", "q", () => t("leave; the item goes back to the queue")),
  help: action("help", "?", () => t("this list")),
};

export const PAIR = {
  diff: action("diff", "d", () => t("show or hide which words differ")),
};

export const ADJUDICATION = {
  reveal: action("reveal", "v", () => t("show the votes before deciding, which the records then say")),
};

export const PRINCIPLES = {
  principles: action("principles", "p", () => t("to the principles: the numbers answer, arrows move, Escape goes back to the keys")),
  evidence: action("evidence", "e", () => t("attach the words selected in a response to the principle that is marked")),
};

/** Those of questions that are no pair. */
export const TASK = {
  store: action("store", "Enter", () => t("store the answer")),
  back: action("back", "z", () => t("take the last step of the answer back")),
  share: action("share", "=", () => t("the next one is as good as the last")),
  unknown: action("unknown", "-", () => t("cannot say")),
};

/** What a number means depends on where it is pressed. */
export function numberKey(number: number, what: () => string = () => String(number)): Action {
  return action(`number:${number}`, String(number), what);
}

/** Of the list's first, second, ... response. */
export function letterKey(index: number): Action {
  const letter = "ABCDEFGHI"[index] ?? "";
  return action(`letter:${letter}`, letter, () => t("{{letter}} is next", { letter }));
}

/** One of the things that a question type lets people say, on the key that it names. `of`: keeps two types apart. */
export function optionKey(of: string, option: Pick<Option, "name" | "key" | "label">): Action {
  return action(`${of}:${option.name}`, option.key, () => t(option.label));
}
