"""The built-in kinds of jobs. Leaves out: their settings, which are the options of the commands."""

from assay_web.jobs.estimates import (
    benchmark_figures,
    comparisons_figures,
    consistency_figures,
    decontaminate_figures,
    evaluation_figures,
    judge_figures,
    loop_figures,
    policy_figures,
    prepare_stage1,
    sample_figures,
    score_figures,
    snapshot_figures,
    stage1_figures,
    stage2_figures,
    training_figures,
    unverified_figures,
)
from assay_web.jobs.kind import JobKind

IMPORT = JobKind("Import", ("data", "import"), "data", "store", ("path", "format", "map", "values", "source", "split"))
SAMPLE = JobKind("Sample data", ("demo",), "data", "compute", ("data", "quick"), figures=sample_figures)
CLEAN = JobKind(
    *("Clean", ("data", "clean"), "data", "store", ("max_characters", "control_characters")),
    figures=comparisons_figures,
)
DEDUP = JobKind("Deduplicate", ("data", "dedup"), "data", "store", figures=comparisons_figures)
NEAR_DUPLICATES = JobKind(
    *("Near-duplicates", ("data", "near-dup"), "data", "store", ("action", "threshold", "shingle", "over")),
    figures=comparisons_figures,
)
EMBED = JobKind(
    *("Embed", ("data", "embed"), "data", "store", ("encoder", "pool", "source")),
    figures=comparisons_figures,
)
DECONTAMINATE = JobKind(
    "Decontaminate",
    ("data", "decontaminate"),
    "data",
    "store",
    ("benchmark", "action", "ngram", "unit", "responses", "encoder"),
    figures=decontaminate_figures,
)
BENCHMARK = JobKind(
    *("Register a benchmark", ("data", "benchmarks", "add"), "data", "store", ("name", "path", "field")),
    figures=benchmark_figures,
)
SNAPSHOT = JobKind(
    *("Training set", ("data", "snapshot"), "data", "store", ("name", "holdout", "pool", "source", "category")),
    figures=snapshot_figures,
)
VERIFY = JobKind("Verify", ("curate", "verify"), "curation", "store", ("share", "source"), figures=unverified_figures)
STAGE1 = JobKind(
    *("Stage 1: people and judges", ("curate", "stage1"), "curation", "store", ("config",)),
    figures=stage1_figures,
    prepare=prepare_stage1,
)
STAGE2 = JobKind(
    "Stage 2: reward models",
    ("curate", "stage2"),
    "curation",
    "store",
    ("best", "gold", "keep_above", "recycle_below", "judges", "max_cost", "source", "dry_run"),
    figures=stage2_figures,
)
CONSISTENCY = JobKind(
    "Consistency with reward models",
    ("curate", "consistency"),
    "curation",
    "store",
    ("model", "keep_above", "flip_below", "source", "dry_run"),
    figures=consistency_figures,
)
JUDGE = JobKind(
    *("Ask judges", ("judge", "run"), "curation", "store", ("judges", "pool", "source", "limit", "max_cost")),
    figures=judge_figures,
)
TRAIN = JobKind(
    "Train",
    ("train",),
    "rewards",
    prominent=("data", "base", "eval_data", "name", "preset", "epochs", "lr", "batch_size", "lora", "max_length"),
    choice="method",
    figures=training_figures,
)
EVALUATE = JobKind(
    *("Evaluate", ("eval",), "rewards", "compute", ("model", "data", "bench", "path", "limit")),
    figures=evaluation_figures,
)
CALIBRATE = JobKind(
    *("Calibrate", ("calibrate",), "rewards", "compute", ("model", "data", "method")),
    figures=evaluation_figures,
)
SCORE = JobKind(
    *("Score responses", ("score",), "rewards", "compute", ("file", "model", "save")),
    figures=score_figures,
    resumes=False,
)
POLICY = JobKind(
    "Train a policy",
    ("rl",),
    "policies",
    prominent=(
        *("recipe", "policy", "reward", "prompts", "steps", "lr", "group_size", "max_new_tokens", "evaluate"),
        "name",
    ),
    figures=policy_figures,
)
LOOP = JobKind("Online loop", ("loop",), "policies", prominent=("config",), figures=loop_figures)
