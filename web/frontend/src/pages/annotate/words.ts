import type { Schemas } from "../../api/client";
import { percent } from "../../format/percent";

export type Item = Schemas["SittingItem"];
export type Choice = NonNullable<Schemas["VoteBody"]["choice"]>;
export type SkipReason = NonNullable<Schemas["VoteBody"]["skip"]>;
export type Place = Schemas["PrincipleBody"]["place"];
export type Fulfilment = Schemas["PrincipleBody"]["answer"];
export type Said = Schemas["ReceiptReply"]["said"];

/** By its number. The terminal's sitting has the same words and keys. */
export const STRENGTHS = ["barely", "slightly", "clearly", "far"] as const;

export const CHOICES: Record<string, Choice> = { a: "first", b: "second", t: "tie", g: "both_good", x: "both_bad" };

export const SKIPS: Record<string, { reason: SkipReason; label: string }> = {
  c: { reason: "cannot_decide", label: "I cannot decide which is better" },
  k: { reason: "broken", label: "The texts are broken or unreadable" },
  n: { reason: "not_for_me", label: "Not my field, or I should not judge this one" },
  l: { reason: "later", label: "Not now; somebody else may take it" },
};

const SAID: Record<Said, string> = {
  first: "A is better",
  second: "B is better",
  tie: "Tie",
  both_good: "Both good",
  both_bad: "Both bad",
  skip: "Skipped",
};

/** "A is clearly better": in the letters of the reader's own screen. */
export function saidInWords(said: Said, strength?: number | null): string {
  if (strength == null || (said !== "first" && said !== "second")) return SAID[said];
  return `${said === "first" ? "A" : "B"} is ${STRENGTHS[strength]} better`;
}

/** What was written with a vote; a skip's begins with its reason's name, which its words stand for. */
export function rationaleInWords(said: Said, rationale: string): string {
  if (said !== "skip") return rationale;
  const [reason, ...rest] = rationale.split(": ");
  const label = Object.values(SKIPS).find((skip) => skip.reason === reason)?.label;
  return label === undefined ? rationale : [label, ...rest].join(": ");
}

/** 95 -> "1:35" */
export function clock(seconds: number): string {
  const whole = Math.floor(seconds);
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, "0")}`;
}

/** A share that comes in steps of a twentieth, rounded down. */
export function shareInWords(share: number): string {
  if (share >= 1) return "all done";
  return share === 0 ? "under 5 % done" : `about ${percent(share, 0)} done`;
}
