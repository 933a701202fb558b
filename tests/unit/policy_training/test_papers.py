"""The pages of policy training name what there is: recipes, papers, plug-ins with their settings, metrics, prompts."""

from __future__ import annotations

import json
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from assay.cli.main import main
from assay.errors import BadInputError
from assay.workspace import Workspace
from assay_policy_training.plugins.prompts.source import load_prompts
from assay_policy_training.recipe.loading import load_recipe
from assay_policy_training.recipe.shipped import recipe_text, shipped_recipes
from assay_policy_training.recipe.slots import SLOTS

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples" / "policy_training"
PAPERS = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
RECIPES = (ROOT / "docs" / "policy-training" / "recipes.md").read_text(encoding="utf-8")
TRAINING = (ROOT / "docs" / "policy-training" / "training.md").read_text(encoding="utf-8")
PLUGINS = [(slot, kind) for slot, kinds in SLOTS.items() for kind in kinds.members]


def tables(page: str, first_column: str) -> list[list[str]]:
    """The cells of every row of the tables whose head begins with that column."""
    found, within = [], False
    for line in page.splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if not cells:
            within = False
        elif cells[0] == first_column:
            within = True
        elif within and set(cells[0]) != {"-"}:
            found.append(cells)
    return found


#: Recipe -> its row; the recipe is the third column.
ROWS = {row[2].strip("`"): row for row in tables(PAPERS, "method") if len(row) == 6}


def marks(text: str) -> set[str]:
    return set(re.findall(r"(?<!\w)\[([CFPSRA])[\]:]", text))


def test_every_row_names_a_shipped_recipe_and_every_recipe_has_a_row() -> None:
    assert sorted(ROWS) == sorted(shipped_recipes())


def test_the_overview_names_recipes_that_ship() -> None:
    overview = (ROOT / "docs" / "overview.md").read_text(encoding="utf-8")
    cells = " ".join(row[1] for row in tables(overview, "you want") if row[0] != "your own")
    named = set(re.findall(r"`(\w+)`", cells))
    assert len(named) > 20
    assert not named - set(shipped_recipes())


@pytest.mark.parametrize("name", shipped_recipes())
def test_recipe_has_its_paper_its_plugins_and_its_marks(name: str) -> None:
    text = recipe_text(name)
    recipe, (_, paper, _, plugins, checked, mark) = yaml.safe_load(text), ROWS[name]
    assert recipe["paper"] in paper
    for slot, kinds in SLOTS.items():
        listed = recipe.get(slot, [])
        for section in listed if isinstance(listed, list) else [listed]:
            kind = section.get("kind")
            assert kind not in kinds.members or kind in ("enough_valid", "weighted") or f"`{kind}`" in plugins, (
                slot,
                kind,
            )
    legend, claims = text.split("What was checked")[1].split(":\n", 1)
    assert marks(mark) == marks(claims) == marks(checked), "the recipe's claims, the page's words, the page's mark"
    assert marks(legend) == marks(claims), "the header explains the marks that its claims have, and no other"


@pytest.mark.parametrize(("slot", "kind"), PLUGINS)
def test_plugin_imports_and_has_a_row_with_its_settings(slot: str, kind: str) -> None:
    cls: Any = SLOTS[slot].find(kind)
    assert is_dataclass(cls)
    assert isinstance(cls, type)
    section = RECIPES.split(f"(`{slot}`)")[1].split("\n### ")[0]
    rows = {row[0]: row for row in tables(section, "kind")}
    assert f"`{kind}`" in rows, f"{kind} is not in the table of {slot}"
    assert rows[f"`{kind}`"][1] == settings(cls), f"the settings of {slot}.{kind} as they are"


def settings(cls: type[Any]) -> str:
    """The cell of a plug-in's settings: each with its default; what is a table or a section of its own has none."""
    return ", ".join(f"`{f.name}{_default(f)}`" for f in fields(cls) if f.init)


def _default(setting: Field[Any]) -> str:
    if setting.default is MISSING and setting.default_factory is MISSING:
        return ": required"
    value = setting.default if setting.default_factory is MISSING else setting.default_factory()
    value = list(value) if isinstance(value, tuple) else value
    if is_dataclass(value) or (isinstance(value, list) and any(map(is_dataclass, value))):
        return ""
    written = json.dumps(value, ensure_ascii=False)
    return ": " + (written[1:-1] if re.fullmatch(r'"[\w-]+"', written) else written)


#: The page's table of what cannot be combined: recipe, overrides, the key that the error names.
REFUSED: list[tuple[str, list[str], str]] = [
    ("rloo", ["optimisation.minibatches=2"], "objective"),
    ("grpo", ["sampling.group_size=1"], "sampling.group_size"),
    ("rloo", ["asynchrony.lag=1"], "asynchrony.lag"),
    ("tis", ["corrections=[{kind: token_tis}, {kind: icepop}]"], "corrections"),
    ("aipo", ["corrections=[{kind: token_tis}]"], "corrections"),
    ("tis", ["objective.bypass=true"], "corrections"),
    ("pacs", ["token_weights=[{kind: high_entropy}]"], "token_weights"),
    ("inpo", ["corrections=[{kind: sequence_tis}]"], "corrections"),
    ("gspo", ["aggregation.mode=token-mean"], "aggregation.mode"),
    ("gmpo", ["token_weights=[{kind: steer}]"], "token_weights"),
    ("gspo", ["corrections=[{kind: token_tis}]"], "corrections"),
    ("trust_region_masking", ["aggregation.mode=token-mean"], "aggregation.mode"),
    ("guide_grpo", ["corrections=[{kind: geometric}]"], "corrections"),
    ("one_shot", ["filters=[{kind: dynamic_sampling}]"], "filters"),
    ("t_ppo", ["critic=null"], "estimator"),
    ("t_ppo", ["contexts={kind: ghpo}"], "sampler"),
    ("ppo_hl_gauss", ["critic.clip=0.2"], "critic.clip"),
    ("rover", ["sampling.prune_log_ratio=-13"], "sampling.prune_log_ratio"),
    ("drpo", ["sampling.max_new_tokens=256"], "objective.max_length"),
    ("length_lr", ["schedules=[{kind: length_lr}, {kind: linear, end: 9}]"], "schedules"),
    ("length_lr", ["optimisation.warmup_steps=60"], "schedules.baseline_steps"),
    ("grpo", ["critic={kind: value_model}"], "critic"),
    ("grpo", ["teacher=tiny"], "teacher"),
    ("gdpo", ["shaping=[{kind: dler}]"], "shaping"),
    ("constrained_rlhf", ["shaping=[{kind: dler}]"], "shaping"),
    ("w_reinforce", ["shaping=[{kind: overlong}]"], "shaping"),
    ("dpa", ["shaping=[{kind: overlong}]"], "shaping"),
    ("recap", ["aggregation.mode=token-mean"], "replay.denominator"),
    ("dynamic_weighting_gradient", ["sampling.temperature=0.7"], "reward.temperature"),
    ("guide_grpo", ["objective={kind: aipo}"], "objective"),
    ("trajectory_weighting", ["aggregation.mode=seq-mean-token-mean"], "aggregation.mode"),
    ("nash_md", ["sampler.count=4"], "sampler.count"),
    ("srpo", ["sampling.group_size=3"], "sampling.group_size"),
    ("srpo", ["contexts.request=Again."], "sampler.request"),
    ("rl_plus", ["sampling.group_size=2", "sampler.count=2"], "sampler.count"),
]


@pytest.mark.parametrize(("name", "overrides", "field"), REFUSED)
def test_what_the_page_says_is_refused_is(name: str, overrides: list[str], field: str) -> None:
    load_recipe(name)
    with pytest.raises(BadInputError) as refused:
        load_recipe(name, overrides)
    assert refused.value.field == field


@pytest.fixture(scope="module")
def example_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of the page's example, watched by the very reward that it trains on."""
    workspace = Workspace.create(tmp_path_factory.mktemp("pages") / "ws")
    small = [
        "--policy",
        "tiny",
        "--prompts",
        "constrained:4",
        "--steps",
        "1",
        "--group-size",
        "4",
        "--watch-share",
        "1",
    ]
    numbers = ["--prompts-per-step", "4", "--max-new-tokens", "8", "--lr", "1e-3", "-w", str(workspace.root)]
    numbers += ["--set", "report_kl=true"]
    recipe = str(EXAMPLE / "softer_negatives.yaml")
    with pytest.raises(SystemExit) as ended:
        main(["rl", "--recipe", recipe, "--reward", "verifier", "--watch", "verifier", *small, *numbers])
    assert ended.value.code == 0
    (folder,) = (path.parent for path in workspace.runs.glob("*/rollouts.jsonl"))
    return folder


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_pages_example_is_the_file_and_trains(example_run: Path) -> None:
    for name in ("softer_negatives.py", "softer_negatives.yaml"):
        assert (EXAMPLE / name).read_text(encoding="utf-8").strip() in RECIPES, name
    rows = lines(example_run / "rollouts.jsonl")
    below = 0
    for row in rows:
        group = [other["reward"] for other in rows if other["uid"] == row["uid"]]
        ahead = row["reward"] - sum(group) / len(group)
        below += ahead < 0
        assert row["advantage"] == pytest.approx(ahead if ahead > 0 else 0.5 * ahead, abs=1e-6)
    assert below, "some response is below its group's mean"


def test_every_metric_of_a_run_is_in_the_pages_table(example_run: Path) -> None:
    named = {name for row in tables(TRAINING, "metric") for name in re.findall(r"`([\w.]+)`", row[0])}
    patterns = [re.compile(re.sub("PART|STAGE|NAME|BAND", r"\\w+", name)) for name in named]
    (row,) = lines(example_run / "metrics.jsonl")
    assert {"reward_mean", "held_out_reward_mean", "kl_k3"} <= row.keys()
    assert not [key for key in row if not any(pattern.fullmatch(key) for pattern in patterns)]


def test_the_pages_prompts_are_prompts(tmp_path: Path) -> None:
    block, _ = re.findall(r"^```json\n(.*?)^```", TRAINING, re.MULTILINE | re.DOTALL)
    (tmp_path / "prompts.jsonl").write_text(block, encoding="utf-8")
    items = load_prompts(str(tmp_path / "prompts.jsonl"), seed=0)
    assert [len(item.constraints) for item in items] == [1, 1, 0]
    assert items[2].meta["reference_rewards"] == [0.4]
