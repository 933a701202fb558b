import { useState } from "react";

import { t } from "../../i18n";
import { nextStep, stepsOf, type Step } from "./steps";
import type { Figures } from "./useHome";

const SCORED = "assay.first-hour.scored";

/** The steps of the first hour and the next one. `leave`: to be called with the step that somebody goes to. */
export function useFirstHour(figures: Figures): { steps: Step[]; next: Step | null; leave: (key: string) => void } {
  const [scored, setScored] = useState(() => localStorage.getItem(SCORED) !== null);
  const score: Step = {
    key: "score",
    title: t("Score a response"),
    why: t("Write a prompt and two responses in the playground, and see what the model says of them."),
    action: t("Open the playground"),
    to: "/rewards/playground",
    done: scored && figures.servers.length > 0,
    optional: true,
    figure: null,
  };
  const steps = stepsOf(figures, true).filter(({ key }) => key !== "decontaminate");
  steps.splice(steps.findIndex(({ key }) => key === "policy"), 0, score);
  const leave = (key: string) => {
    if (key !== "score") return;
    localStorage.setItem(SCORED, "yes");
    setScored(true);
  };
  return { steps, next: nextStep(steps), leave };
}
