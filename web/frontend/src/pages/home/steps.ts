import { t } from "../../i18n";
import { formPath } from "../jobs/useJobs";
import type { Figures } from "./useHome";

/** A step on the way from a file to a policy. `figure`: what there is of it; `optional`: the next one does not need it. */
export interface Step {
  key: string;
  title: string;
  why: string;
  action: string;
  to: string;
  done: boolean;
  optional: boolean;
  figure: string | null;
}

/**
 * In order, each with the form or page where it is done, filled in as far as the workspace tells. `small`: with settings
 * that end within minutes on a laptop.
 */
export function stepsOf(figures: Figures, small = false): Step[] {
  const of = (number: number, words: string) => (number === 0 ? null : words);
  const { newest_set: set, newest_held_out: heldOut, newest_model: model } = figures;
  const server = figures.servers[0];
  return [
    {
      key: "import",
      title: t("Bring data"),
      why: t("Prompts with two or more responses and what was said of them: a file, a data set of the hub, or a sample."),
      action: t("Import data"),
      to: "/data/import",
      done: figures.comparisons > 0,
      optional: false,
      figure: of(figures.comparisons, t("{{count}} comparisons", { count: figures.comparisons })),
    },
    {
      key: "clean",
      title: t("Clean"),
      why: t("Sets aside what breaks structural rules, each with its reason."),
      action: t("Clean"),
      to: formPath("clean"),
      done: figures.cleaned > 0,
      optional: true,
      figure: null,
    },
    {
      key: "dedup",
      title: t("Deduplicate"),
      why: t("Keeps one of what is there several times, and sets contradicting labels aside."),
      action: t("Deduplicate"),
      to: formPath("dedup"),
      done: figures.deduplicated > 0,
      optional: true,
      figure: null,
    },
    {
      key: "decontaminate",
      title: t("Check against benchmarks"),
      why: figures.benchmarks === 0 ? t("No benchmark is registered, so there is nothing to check against yet.") : t("Sets aside what overlaps with a benchmark, with the text in common."),
      action: t("Check"),
      to: formPath("decontaminate"),
      done: figures.decontaminated > 0,
      optional: true,
      figure: of(figures.benchmarks, t("{{count}} benchmarks", { count: figures.benchmarks })),
    },
    {
      key: "queue",
      title: t("Ask people"),
      why: t("A queue of comparisons for people to judge, with a guideline."),
      action: t("Make a queue"),
      to: "/annotate/new",
      done: figures.queues > 0,
      optional: false,
      figure: of(figures.queues, t("{{count}} queues", { count: figures.queues })),
    },
    {
      key: "annotate",
      title: t("Annotate"),
      why: t("One key a decision."),
      action: t("Go to the queues"),
      to: "/annotate",
      done: figures.votes > 0,
      optional: false,
      figure: of(figures.votes, t("{{count}} votes", { count: figures.votes })),
    },
    {
      key: "decide",
      title: t("Decide by the votes"),
      why: t("Majorities become gold labels."),
      action: t("Go to the queues"),
      to: "/annotate",
      done: figures.decided > 0,
      optional: false,
      figure: null,
    },
    {
      key: "set",
      title: t("Make a training set"),
      why: t("Fixes labelled comparisons under a name, with a part held out for evaluation."),
      action: t("Make a training set"),
      to: "/data/training-sets",
      done: figures.training_sets > 0,
      optional: false,
      figure: set,
    },
    {
      key: "train",
      title: t("Train a reward model"),
      why: t("It learns which response people prefer."),
      action: t("Train"),
      to: formPath("train", { ...(small ? { method: "probe" } : {}), data: set, eval_data: heldOut }),
      done: figures.reward_models > 0,
      optional: false,
      figure: of(figures.reward_models, t("{{count}} reward models", { count: figures.reward_models })),
    },
    {
      key: "evaluate",
      title: t("Evaluate it"),
      why: t("Its accuracy with an interval, beside what length alone would get."),
      action: t("Evaluate"),
      to: formPath("evaluate", { model: model === null ? null : [model], data: heldOut }),
      done: figures.evaluated > 0,
      optional: true,
      figure: null,
    },
    {
      key: "serve",
      title: t("Serve it"),
      why: t("Rewards over HTTP, for the playground and for policy training."),
      action: t("Serve"),
      to: "/rewards/served",
      done: figures.servers.length > 0,
      optional: false,
      figure: server ?? null,
    },
    {
      key: "policy",
      title: t("Train a policy"),
      why: t("A language model learns to get higher rewards from the served model."),
      action: t("Train a policy"),
      to: formPath("policy", {
        reward: server === undefined ? null : [server],
        ...(small ? { prompts: set === null ? null : [set], steps: 4, group_size: 4, max_new_tokens: 24, set: ["optimisation.autocast=false"] } : {}),
      }),
      done: figures.policies > 0,
      optional: false,
      figure: of(figures.policies, t("{{count}} policies", { count: figures.policies })),
    },
  ];
}

/** The first step that is not done: of the optional ones none that a later one has overtaken. */
export function nextStep(steps: Step[]): Step | null {
  const last = steps.reduce((at, { done }, n) => (done ? n : at), -1);
  return steps.find(({ done, optional }, n) => !done && !(optional && n < last)) ?? null;
}
