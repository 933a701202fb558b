import type { Schemas } from "../../../api/client";
import { t } from "../../../i18n";

export type Question = NonNullable<Schemas["NewQueue"]["question"]>;

/** What may be asked, of what, and whether people's answers can be checked and adjudicated. */
export function questions(): { value: Question; label: string; about: string }[] {
  return [
    { value: "pair", label: t("Which of two responses is better"), about: t("Gold checks come from the gold pool; what has no majority is adjudicated.") },
    { value: "rating", label: t("Rate a response"), about: t("Adjudicated where no rating is within a quarter of the scale of most others.") },
    { value: "steps", label: t("Label the steps of a response"), about: t("Adjudicated where most do not agree on the first wrong step.") },
    { value: "spans", label: t("Mark words of a response"), about: t("No gold checks and no adjudication: careful people mark different words, and all marks stand.") },
    { value: "ranking", label: t("Rank the responses to a prompt"), about: t("Adjudicated where most contradict each other's order of two responses.") },
  ];
}

/** Of a queue; one of a plug-in by its own name. */
export function questionInWords(question: string): string {
  return questions().find(({ value }) => value === question)?.label ?? question;
}

/** The pages of those who run a queue: the end of the address, and the name. */
export function queuePages(): [string, string][] {
  return [
    ["settings", t("Settings")],
    ["items", t("Items")],
    ["notes", t("Notes")],
    ["report", t("Annotators and agreement")],
  ];
}
