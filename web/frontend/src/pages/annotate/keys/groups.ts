import { t } from "../../../i18n";
import type { Item, PairWords } from "../words";
import type { QuestionTypes } from "../questionTypes";
import { ADJUDICATION, letterKey, numberKey, optionKey, PAIR, PRINCIPLES, SESSION, TASK, type Action } from "./actions";

/** Actions that are listed together. `apart`: alive while nothing else is, so that they may have any key. */
export interface KeyGroup {
  title: string;
  actions: Action[];
  apart?: boolean;
}

/** What keys do at an item: its question's own, then those of every session. */
export function keyGroups(item: Item | undefined, words: PairWords, types: QuestionTypes, adjudicating: boolean): KeyGroup[] {
  const groups: KeyGroup[] = [
    { title: t("Decide"), actions: item === undefined || item.responses.length === 0 ? pairKeys(words) : taskKeys(item, types) },
    { title: t("Skip: why?"), actions: words.skips.map((skip) => optionKey("skip", skip)), apart: true },
  ];
  if (item !== undefined && item.principles.length > 0) groups.push({ title: t("Principles"), actions: Object.values(PRINCIPLES) });
  groups.push({ title: t("Session"), actions: [...(adjudicating ? Object.values(ADJUDICATION) : []), ...Object.values(SESSION)] });
  return groups;
}

function pairKeys(words: PairWords): Action[] {
  const strengths = words.strengths.map((word, number) => numberKey(number, () => t("how much: {{word}}; pressed before, again to take it back", { word: t(word) })));
  return [...words.choices.map((choice) => optionKey("choice", choice)), ...strengths, ...Object.values(PAIR)];
}

function taskKeys({ component, question, responses, settings }: Item, types: QuestionTypes): Action[] {
  const always = [TASK.back, TASK.store];
  switch (component) {
    case "ResponseRating":
      return [...Array.from({ length: 10 }, (_, number) => numberKey(number)), TASK.unknown, ...always];
    case "StepLabels":
      return [...((types[question]?.words.values ?? []) as Parameters<typeof optionKey>[1][]).map((value) => optionKey("step", value)), ...always];
    case "SpanMarking":
      return [...(settings.labels as unknown as string[]).slice(0, 9).map((label, n) => numberKey(n + 1, () => label)), ...always];
    case "ResponseRanking":
      return [...responses.map((_, index) => letterKey(index)), TASK.share, ...always];
    default:
      return always;
  }
}
