import type { Schemas } from "../../api/client";
import { percent } from "../../format/percent";
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

const skip: Option = { name: "skip", key: "", label: "Skipped", short: "skip" };
const NONE: PairWords = { choices: [], skip, skips: [], counted_skips: [], strengths: [] };

/** None before the API has told them. */
export function useWords(): PairWords {
  const { data } = useQuestionTypes();
  return (data?.pair?.words as PairWords | undefined) ?? NONE;
}

/** "A is clearly better": in the letters of the reader's own screen. */
export function saidInWords(words: PairWords, said: Said, strength?: number | null): string {
  if (strength != null && (said === "first" || said === "second")) return `${said === "first" ? "A" : "B"} is ${words.strengths[strength]} better`;
  if (said === "answered") return "Answered";
  return [...words.choices, words.skip].find((option) => option.name === said)?.label ?? said;
}

/** What was written with a vote; a skip's begins with its reason's name, which its words stand for. */
export function rationaleInWords(words: PairWords, said: Said, rationale: string): string {
  if (said !== "skip") return rationale;
  const [reason, ...rest] = rationale.split(": ");
  const label = words.skips.find((skip) => skip.name === reason)?.label;
  return label === undefined ? rationale : [label, ...rest].join(": ");
}

/** 95 -> "1:35" */
export function clock(seconds: number): string {
  const total = Math.floor(seconds);
  return `${Math.floor(total / 60)}:${String(total % 60).padStart(2, "0")}`;
}

/** A share that comes in steps of a twentieth, rounded down. */
export function shareInWords(share: number): string {
  if (share >= 1) return "all done";
  return share === 0 ? "under 5 % done" : `about ${percent(share, 0)} done`;
}
