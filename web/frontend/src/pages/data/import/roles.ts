import { t } from "../../../i18n";

/** What a column can be, by our names, the usual ones first. */
const ROLES: [string, () => string][] = [
  ["prompt", () => t("Prompt")],
  ["chosen", () => t("Chosen response")],
  ["rejected", () => t("Rejected response")],
  ["response_a", () => t("Response A")],
  ["response_b", () => t("Response B")],
  ["label", () => t("Label: which is better")],
  ["response", () => t("Response (one a row)")],
  ["responses", () => t("Responses (a list)")],
  ["score", () => t("Score of the response")],
  ["ratings", () => t("Ratings")],
  ["scores", () => t("Scores (a list)")],
  ["ranks", () => t("Ranks (a list)")],
  ["score_a", () => t("Score of A")],
  ["score_b", () => t("Score of B")],
  ["votes", () => t("Votes")],
  ["completion", () => t("Completion (with a label)")],
  ["system", () => t("System prompt")],
  ["annotator", () => t("Annotator")],
  ["rationale", () => t("Rationale")],
  ["strength", () => t("Strength, 0 to 3")],
  ["margin", () => t("Margin, 0 to 3")],
  ["id", () => t("Id of the row")],
  ["source", () => t("Source")],
  ["category", () => t("Category")],
  ["language", () => t("Language")],
  ["license", () => t("Licence")],
];

/** Those of the roles that the server knows, as choices. */
export function roleChoices(targets: string[]): { value: string; label: string }[] {
  return ROLES.filter(([name]) => targets.includes(name)).map(([value, label]) => ({ value, label: label() }));
}

/** What a code of a label can mean. */
export function labelChoices(): { value: string; label: string }[] {
  return [
    { value: "first", label: t("A is better") },
    { value: "second", label: t("B is better") },
    { value: "tie", label: t("Tie") },
    { value: "both_good", label: t("Both good") },
    { value: "both_bad", label: t("Both bad") },
    { value: "skip", label: t("Skipped") },
    { value: "true", label: t("Yes: acceptable") },
    { value: "false", label: t("No: not acceptable") },
  ];
}
