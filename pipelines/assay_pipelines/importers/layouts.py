"""What a record can mean: every layout that is read, by name, in the order in which they are tried.

Covers: the table of layouts, choosing one by name or from a file's first rows. Leaves out: containers (`containers`),
what each layout does with a record (its own module).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from assay.data.json_lines import RowError
from assay.errors import BadInputError
from assay_pipelines.importers import (
    arena,
    benchmarks,
    helpsteer3,
    hh,
    judgments,
    label_studio,
    normalised,
    ranked,
    rlhflow,
    stepwise,
    trl,
    ultrafeedback,
    unpaired,
    verl,
)
from assay_pipelines.importers.joining import Join
from assay_pipelines.importers.rows import Row

Record: TypeAlias = Mapping[str, Any]
Parse: TypeAlias = Callable[[Record], list[Row | RowError]]

BENCHMARK = "a benchmark: do not train on it"


@dataclass(frozen=True)
class Layout:
    """`meaning`: how rows become pairs, one by one or joined over the file. `title`: for people, from a first row.

    `source`: the set's name in the store where rows and caller give none (None: the file's). `note`: a warning.
    """

    name: str
    title: str | Callable[[Record], str]
    looks: Callable[[Record], bool]
    meaning: Parse | Join
    source: str | None = None
    note: str = ""

    def describe(self, records: Iterable[Record]) -> str:
        """What to tell a person, from the first record that has this layout."""
        title = self.title
        if not isinstance(title, str):
            title = title(next((record for record in records if self.looks(record)), {}))
        return f"{title} ({self.note})" if self.note else title


#: Tried in this order: those that only one publisher writes first, the general ones last.
LAYOUTS: tuple[Layout, ...] = (
    Layout(
        "label-studio",
        "a Label Studio export (JSON)",
        label_studio.looks_label_studio,
        label_studio.parse_label_studio,
    ),
    Layout(
        "label-studio-min",
        "a Label Studio export (JSON_MIN)",
        label_studio.looks_label_studio_min,
        label_studio.parse_label_studio_min,
    ),
    Layout(
        "helpsteer3-principle",
        "HelpSteer3 principle judgments",
        helpsteer3.looks_principle,
        helpsteer3.parse_principle,
        source="HelpSteer3-principle",
    ),
    Layout(
        "helpsteer3-edit-quality",
        "HelpSteer3 good and bad edits",
        helpsteer3.looks_edit_quality,
        helpsteer3.parse_edit_quality,
        source="HelpSteer3-edit-quality",
    ),
    Layout(
        "helpsteer3-edit",
        "HelpSteer3 edits",
        helpsteer3.looks_edit,
        helpsteer3.parse_edit,
        source="HelpSteer3-edit",
    ),
    Layout(
        "helpsteer3-feedback",
        "HelpSteer3 feedback",
        helpsteer3.looks_feedback,
        helpsteer3.parse_feedback,
        source="HelpSteer3-feedback",
    ),
    Layout(
        "helpsteer3-preference",
        "HelpSteer3 preferences",
        helpsteer3.looks_preference,
        helpsteer3.parse_preference,
        source="HelpSteer3-preference",
    ),
    Layout("arena", "Chatbot Arena votes", arena.looks_arena, arena.parse_arena, source="Arena-55k"),
    Layout(
        "judgebench",
        "JudgeBench",
        benchmarks.looks_judgebench,
        benchmarks.parse_judgebench,
        source="JudgeBench",
        note=BENCHMARK,
    ),
    Layout("nemo-rl", "NeMo-RL ranked completions", ranked.looks_ranked, ranked.parse_ranked),
    Layout(
        "ultrafeedback-raw",
        "UltraFeedback, ranked by its aspect ratings",
        ultrafeedback.looks_raw,
        ultrafeedback.parse_raw,
        source="UltraFeedback",
    ),
    Layout("trl-stepwise", "TRL stepwise supervision", stepwise.looks_stepwise, stepwise.STEPWISE),
    Layout(
        "ultrafeedback-binarized",
        "UltraFeedback, binarized",
        ultrafeedback.looks_binarized,
        ultrafeedback.parse_binarized,
        source="UltraFeedback-binarized",
    ),
    Layout(
        "rewardbench-2",
        "RewardBench 2",
        benchmarks.looks_rewardbench_2,
        benchmarks.parse_rewardbench_2,
        source="RewardBench-2",
        note=BENCHMARK,
    ),
    Layout(
        "rm-bench",
        "RM-Bench, nine pairs a row",
        benchmarks.looks_rm_bench,
        benchmarks.parse_rm_bench,
        source="RM-Bench",
        note=BENCHMARK,
    ),
    Layout(
        "rewardbench-1",
        "RewardBench",
        benchmarks.looks_rewardbench,
        benchmarks.parse_rewardbench,
        source="RewardBench",
        note=BENCHMARK,
    ),
    Layout("assay-judgments", "judgments that Assay exported", judgments.looks_judgment, judgments.parse_judgment),
    Layout("rlhflow", "RLHFlow pair-pm text", rlhflow.looks_rlhflow, rlhflow.parse_rlhflow),
    Layout("verl", "verl rows with comparisons", verl.looks_verl, verl.parse_verl),
    Layout("hh", "HH-RLHF text", hh.looks_like_hh, hh.parse_hh),
    Layout("normalised", "the normalised form", normalised.looks_normalised, normalised.parse_normalised),
    Layout(
        "skywork",
        "Skywork-Reward-Preference pairs",
        trl.looks_skywork,
        trl.parse_trl,
        note="v0.1 overlaps RewardBench: check contamination before training",
    ),
    Layout("trl", trl.title_of, trl.looks_trl, trl.parse_trl),
    Layout("trl-unpaired", "TRL unpaired preference", unpaired.looks_unpaired, unpaired.UNPAIRED),
)
BY_NAME = {layout.name: layout for layout in LAYOUTS}

#: Names for a whole family: which member it is, its rows tell. The first one is taken where they do not.
FAMILIES: dict[str, tuple[str, ...]] = {
    "trl": ("trl", "trl-unpaired", "trl-stepwise"),
    "trl-explicit": ("trl",),
    "trl-implicit": ("trl",),
    "helpsteer3": tuple(name for name in BY_NAME if name.startswith("helpsteer3-")),
    "ultrafeedback": ("ultrafeedback-raw", "ultrafeedback-binarized"),
    "rewardbench": ("rewardbench-1", "rewardbench-2"),
    "label-studio": ("label-studio", "label-studio-min"),
}
NAMES: tuple[str, ...] = tuple(sorted({*BY_NAME, *FAMILIES}))

#: Layouts whose columns may have other names, given by a mapping.
MAPPABLE = frozenset({"trl", "trl-unpaired"})


def recognise(records: Sequence[Record], *, mapped: bool) -> Layout | None:
    """The first layout that any of the records has. `mapped`: columns were renamed, so only general layouts fit."""
    if not mapped and any(hh.looks_like_red_team(record) for record in records):
        raise BadInputError(
            "HH-RLHF's red-team set holds one rated transcript a row and no second response to compare it with; "
            "its preference pairs are in the folders harmless-base and helpful-*"
        )
    layouts = [layout for layout in LAYOUTS if not mapped or layout.name in MAPPABLE]
    return next((layout for layout in layouts if any(layout.looks(record) for record in records)), None)


def named(name: str, records: Sequence[Record]) -> Layout:
    """The layout of that name; of a family, the member that the records show. Raises BadInputError for a bad choice."""
    members = [BY_NAME[member] for member in FAMILIES.get(name, (name,))]
    chosen = next((layout for layout in members if any(layout.looks(record) for record in records)), None)
    if chosen is None and len(members) > 1 and name != "trl":
        raise BadInputError(f"the rows are none of {', '.join(layout.name for layout in members)}", field="format")
    return chosen or members[0]
