import type { Schemas } from "../../api/client";
import { percent } from "../../format/percent";
import { t, textKey } from "../../i18n";
import { useQuestionTypes } from "./questionTypes";

export type Item = Schemas["AnnotationItem"];
export type Choice = NonNullable<Schemas["VoteBody"]["choice"]>;
export type SkipReason = NonNullable<Schemas["VoteBody"]["skip"]>;
export type Place = Schemas["PrincipleBody"]["place"];
export type Fulfilment = Schemas["PrincipleBody"]["answer"];
export type Said = Schemas["ReceiptReply"]["said"];

/** One thing to choose, and the key that chooses it. */
export interface Option {
  name: string;
  key: string;
  label: string;
  short: string;
}

/** The words of the question type `pair`, as the API has them. `strengths`: by number. */
export interface PairWords {
  choices: Option[];
  skip: Option;
  skips: Option[];
  counted_skips: string[];
  strengths: string[];
}

const skip: Option = { name: "skip", key: "", label: textKey("Skipped"), short: "skip" };
const NONE: PairWords = { choices: [], skip, skips: [], counted_skips: [], strengths: [] };

/** What the server's question types say, to be translated: `t(option.label)`. */
export const SERVER_WORDS = [
  ...[textKey("A is better"), textKey("B is better"), textKey("Tie"), textKey("Both good"), textKey("Both bad")],
  ...[textKey("I cannot decide which is better"), textKey("The texts are broken or unreadable")],
  ...[textKey("Not my field, or I should not judge this one"), textKey("Not now; somebody else may take it")],
  ...[textKey("barely"), textKey("slightly"), textKey("clearly"), textKey("far")],
  ...[textKey("Correct"), textKey("Neutral, or not sure"), textKey("Wrong"), textKey("yes"), textKey("partly"), textKey("no")],
];

/** None before the API has told them. */
export function useWords(): PairWords {
  const { data } = useQuestionTypes();
  return (data?.pair?.words as PairWords | undefined) ?? NONE;
}

/** "A is clearly better": in the letters of the reader's own screen. */
export function saidInWords(words: PairWords, said: Said, strength?: number | null): string {
  if (strength != null && (said === "first" || said === "second")) {
    return t("{{letter}} is {{how}} better", { letter: said === "first" ? "A" : "B", how: t(words.strengths[strength] ?? "") });
  }
  if (said === "answered") return t("Answered");
  return t([...words.choices, words.skip].find((option) => option.name === said)?.label ?? said);
}

/** What was written with a vote; a skip's begins with its reason's name, which its words stand for. */
export function rationaleInWords(words: PairWords, said: Said, rationale: string): string {
  if (said !== "skip") return rationale;
  const [reason, ...rest] = rationale.split(": ");
  const label = words.skips.find((skip) => skip.name === reason)?.label;
  return label === undefined ? rationale : [t(label), ...rest].join(": ");
}

/** "A is clearly better"; "Skipped. The texts are broken"; an answer to what is no pair as the server puts it. */
export function answerInWords(words: PairWords, { said, answer, skip, strength, rationale }: Schemas["OwnAnswerReply"]): string {
  if (said === "skip") return `${saidInWords(words, said)}. ${rationaleInWords(words, said, rationale || skip)}`;
  return answer || saidInWords(words, said, strength);
}

/** 95 -> "1:35" */
export function clock(seconds: number): string {
  const total = Math.floor(seconds);
  return `${Math.floor(total / 60)}:${String(total % 60).padStart(2, "0")}`;
}

/** A share that comes in steps of a twentieth, rounded down. */
export function shareInWords(share: number): string {
  if (share >= 1) return t("all done");
  return share === 0 ? t("under 5 % done") : t("about {{share}} done", { share: percent(share, 0) });
}
