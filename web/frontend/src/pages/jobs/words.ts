import { t } from "../../i18n";
import type { Area, Job } from "./useJobs";

/** What a kind of job is called; the server's title where there is no word of ours. */
export function titleOf(kind: string, title: string): string {
  const titles: Record<string, string> = {
    import: t("Import"),
    sample: t("Sample data"),
    clean: t("Clean"),
    dedup: t("Deduplicate"),
    near_duplicates: t("Near-duplicates"),
    embed: t("Embed"),
    benchmark: t("Register a benchmark"),
    decontaminate: t("Decontaminate"),
    verify: t("Verify"),
    consistency: t("Consistency with reward models"),
    judge: t("Ask judges"),
    stage1: t("Stage 1: people and judges"),
    stage2: t("Stage 2: reward models"),
    snapshot: t("Training set"),
    train: t("Train a model"),
    evaluate: t("Evaluate"),
    calibrate: t("Calibrate"),
    score: t("Score responses"),
    policy: t("Train a policy"),
    loop: t("Online loop"),
  };
  return titles[kind] ?? title;
}

/** What a job of this kind does, where the command's own sentence is not enough. */
export function explain(kind: string, summary: string): string {
  const texts: Record<string, string> = {
    clean: t("Discards what breaks structural rules: empty or overlong texts, control characters."),
    dedup: t("Keeps one of each pair that differs only in case or white space; sets contradicting labels aside."),
    near_duplicates: t("Clusters what shares most of its word shingles."),
    embed: t("Makes the vectors by which similar comparisons are found."),
    benchmark: t("Keeps the prompts of a benchmark, so that training data can be checked against them."),
    decontaminate: t("Checks every prompt against the registered benchmarks by shared n-grams, with the text in common as evidence."),
    verify: t("Decides, as gold, pairs whose prompt carries constraints that can be checked."),
    consistency: t("Keeps the sources' labels that every reward model agrees with, as silver; flips or discards the others. Asks nobody."),
    judge: t("Puts comparisons to judges and keeps their answers, for Quality, Errors and Conflicts. Decides nothing."),
    stage1: t("Labels a seed, then trains, looks at the errors on gold and labels around them, iteration by iteration."),
    stage2: t("Keeps what a gold model and either the best model or judges agree with; discards or recycles the rest."),
    score: t("Scores the responses of an uploaded file; with saving, for Length and Disagreements."),
    snapshot: t("Fixes labelled comparisons under a name, for training."),
  };
  return texts[kind] ?? summary;
}

export function areaTitle(area: Area): string {
  return { data: t("Data"), curation: t("Curation"), rewards: t("Reward models"), policies: t("Policies") }[area];
}

export function statusWord(status: Job["status"]): string {
  return {
    waiting: t("waiting"),
    running: t("running"),
    stopping: t("stopping"),
    stopped: t("stopped"),
    interrupted: t("interrupted"),
    failed: t("failed"),
    incomplete: t("not complete"),
    done: t("done"),
  }[status];
}

/** A setting's label: a word of ours for what people meet often, else its name in words. */
export function labelOf(setting: string): string {
  const labels: Record<string, string> = {
    base: t("Base model"),
    batch_size: t("Batch size"),
    bench: t("Benchmark"),
    best: t("Best model"),
    config: t("File"),
    data: t("Data"),
    eval_data: t("Held-out data"),
    eval_prompts: t("Held-out prompts"),
    evaluate: t("Evaluate on so many prompts"),
    gold: t("Gold model"),
    group_size: t("Group size"),
    holdout: t("Share held out"),
    lora: t("LoRA rank"),
    lr: t("Learning rate"),
    map: t("Columns"),
    max_cost: t("Budget"),
    max_length: t("Longest conversation, tokens"),
    max_new_tokens: t("Longest response, tokens"),
    method: t("Method"),
    model: t("Reward model"),
    name: t("Name"),
    path: t("File or data set"),
    policy: t("Policy"),
    preset: t("Published settings"),
    prompts: t("Prompts"),
    recipe: t("Recipe"),
    reward: t("Reward"),
    set: t("Settings of the recipe"),
    source: t("Sources"),
    values: t("Codes of the label"),
  };
  return labels[setting] ?? (setting.charAt(0).toUpperCase() + setting.slice(1)).replaceAll("_", " ");
}
