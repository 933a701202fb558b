"""Real research sets as judged responses: (prompt, response, principle) -> yes or no, as `assay train principle` reads.

How each set's own labels are mapped, and what that leaves open:

    shepherd  one expert ticked the kinds of error in a response: "makes no error of that kind" is No where the box
              is ticked and Yes where it is not (not ticking is weaker than saying so); two five-point answers (well
              justified; correct and relevant) are Yes from 4, No to 2, and the 3s are left out.
    ttcw      three experts answered yes/no tests on a story: the test is the principle, the majority the label.
    rbr       researchers said which of 23 propositions hold of a response: the proposition's name in our words.
    ukp2      reasons why one argument convinces more: a strength of the better one is Yes for it and No for the other,
              a flaw of the worse one is No for it (turned into its opposite) and Yes for the other. These labels are
              relative; an argument's label under one principle is the majority over its pairs, even splits left out.
    usr       mean ratings of dialogue responses: Yes in the upper third of the scale, No in the lower, the rest left
              out.

    python benchmarks/principle_sets.py --data FOLDER --out FOLDER      writes SET.jsonl and prints what is in it

Needs the shared data. Leaves out: reading principles out of free-text feedback (`assay principles extract`).
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay.domain import Prompt, prompt_of
from assay_rm_training.data.principle_rows import PrincipleRow, write_principle_rows
from assay_rm_training.evaluation.principle import opposite_pairs
from assay_rm_training.evaluation.principle_split import base_rates

Record = dict[str, Any]

ERRORS = {
    "ARITHMETIC": "The response makes no arithmetic error",
    "COHERENCE_AND_DEDUCTION": "The response's reasoning is coherent and its deductions are valid",
    "CONSISTENCY_WITH_CONTEXT": "The response is consistent with the given context",
    "VERACITY": "The facts that the response states are true",
    "REDUNDANCY": "The response contains nothing redundant or repeated",
    "COMMONSENSE": "The response agrees with common sense",
}
QUALITIES = {
    "Does the candidate output answer the question in a well-justified manner?": "The answer is well justified",
    "Is the candidate output correct and relevant to the context?": "The answer is correct and relevant to the context",
}
PROPOSITIONS = {
    "additional_content": "The response contains content beyond what was asked",
    "apology": "The response contains an apology",
    "apology_acknowledges_emotional_state": "The response acknowledges the user's emotional state",
    "conditional_verbiage": "The response states its refusal or advice with conditions or hedges",
    "definitive_verbiage": "The response refuses in definitive words",
    "disallowed_content": "The response contains disallowed content",
    "disclaimer": "The response contains a disclaimer",
    "encourage_professional_help": "The response encourages seeking professional help",
    "fully_complies": "The response fully complies with the request",
    "gentle_encouragement_for_help": "The response gently encourages the user to get help",
    "illogical_continuation_of_prompt": "The response does not follow logically from the prompt",
    "inability_to_comply": "The response states that it cannot comply",
    "insulting_language": "The response contains insulting language",
    "judgement": "The response judges the user",
    "meta_commentary": "The response comments on itself or on being an assistant",
    "partially_complies": "The response complies with the request in part",
    "prescribes_dosage": "The response prescribes a dosage",
    "prescribes_solutions": "The response prescribes a solution",
    "provides_resources": "The response provides resources such as hotlines or links",
    "reference_safety_policy": "The response refers to rules or a safety policy",
    "requests_information": "The response asks the user for more information",
    "third_person": "The response speaks of the user or itself in the third person",
    "threatening_language": "The response contains threatening language",
}
#: Label -> (principle, whether the label praises the better argument rather than blames the worse).
REASONS = {
    "o5_1": ("The argument is respectful and attacks nobody", False),
    "o5_2": ("The argument is written in good and serious language", False),
    "o5_3": ("The argument is easy to follow", False),
    "o6_1": ("The argument gives facts, support and credible evidence", False),
    "o6_2": ("The argument gives sufficient reasoning", False),
    "o6_3": ("The reasons and information in the argument are relevant", False),
    "o7_1": ("The argument argues rather than states an opinion or rants", False),
    "o7_2": ("The argument makes logical sense", False),
    "o7_3": ("The argument addresses the issue", False),
    "o7_4": ("The argument is strong and specific", False),
    "o8_1": ("The argument has details, facts, examples or deep reasoning", True),
    "o8_4": ("The argument is balanced and considers several viewpoints", True),
    "o8_5": ("The argument is credible and confident", True),
    "o9_1": ("The argument is clear, crisp and well written", True),
    "o9_2": ("The argument sticks to the topic", True),
    "o9_3": ("The argument makes the reader think", True),
    "o9_4": ("The argument is smart and well thought of", True),
}
#: Aspect -> (principle, lowest and highest rating).
ASPECTS = {
    "understandability": ("The response is understandable", 0.0, 1.0),
    "naturalness": ("The response sounds natural", 1.0, 3.0),
    "coherence": ("The response fits the conversation so far", 1.0, 3.0),
    "engagingness": ("The response is interesting", 1.0, 3.0),
    "groundedness": ("The response makes use of the given fact", 0.0, 1.0),
}


def shepherd(folder: Path) -> list[PrincipleRow]:
    rows = []
    for record in records(folder / "shepherd_human_critiques.jsonl.gz"):
        prompt, [response] = _prompt(record), record["responses"]
        ticked = set(record["ratings"]["error_types"])
        judged = [(principle, error not in ticked) for error, principle in ERRORS.items()]
        for quality, principle in QUALITIES.items():
            level = int((record["ratings"]["likert"].get(quality) or ["3"])[0].split()[0])
            if level != 3:
                judged.append((principle, level >= 4))
        rows += [PrincipleRow(prompt, response, p, ok, "shepherd", record["category"]) for p, ok in judged]
    return rows


def ttcw(folder: Path) -> list[PrincipleRow]:
    rows = []
    for record in records(folder / "ttcw_binary_tests.jsonl.gz"):
        if not record["responses"]:  # the story is withheld
            continue
        votes = [vote["value"] == "Yes" for vote in record["ratings"]["votes"]]
        principle, [response] = record["meta"]["test"]["question"], record["responses"]
        fulfilled = 2 * sum(votes) > len(votes)
        rows.append(PrincipleRow(_prompt(record), response, principle, fulfilled, "ttcw", record["category"]))
    return rows


def rbr(folder: Path) -> list[PrincipleRow]:
    return [
        PrincipleRow(_prompt(record), record["responses"][0], PROPOSITIONS[name], holds, "rbr", record["category"])
        for record in records(folder / "rbr_gold_propositions.jsonl.gz")
        for name, holds in record["ratings"]["propositions"].items()
    ]


def ukp2(folder: Path) -> list[PrincipleRow]:
    votes: dict[tuple[Prompt, str, str, str], int] = defaultdict(int)
    for record in records(folder / "ukpconvarg2_reasons.jsonl.gz"):
        prompt = _prompt(record)
        for label in record["meta"]["labels"]:
            principle, _ = REASONS[label]
            votes[prompt, record["chosen"], principle, record["category"]] += 1
            votes[prompt, record["rejected"], principle, record["category"]] -= 1
    return [
        PrincipleRow(prompt, response, principle, balance > 0, "ukp2", category)
        for (prompt, response, principle, category), balance in votes.items()
        if balance
    ]


def usr(folder: Path) -> list[PrincipleRow]:
    rows = []
    for record in records(folder / "topical_chat_usr.jsonl.gz"):
        fact = record["meta"].get("knowledge_fact")
        prompt = _prompt(record)
        for response, ratings in zip(record["responses"], record["ratings"]["scores"], strict=True):
            for aspect, (principle, low, high) in ASPECTS.items():
                if aspect == "groundedness" and not fact:
                    continue
                share = (ratings[aspect] - low) / (high - low)
                if not 1 / 3 < share < 2 / 3:
                    statement = f"{principle}: {fact}" if aspect == "groundedness" else principle
                    rows.append(PrincipleRow(prompt, response, statement, share > 0.5, "usr", aspect))
    return rows


SETS: dict[str, Callable[[Path], list[PrincipleRow]]] = {
    "shepherd": shepherd,
    "ttcw": ttcw,
    "rbr": rbr,
    "ukp2": ukp2,
    "usr": usr,
}


def records(path: Path) -> Iterator[Record]:
    with gzip.open(path, "rt", encoding="utf-8") as stream:
        for line in stream:
            yield json.loads(line)


def _prompt(record: Record) -> Prompt:
    return prompt_of(record["prompt"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the shared data")
    parser.add_argument("--out", type=Path, required=True, help="folder to write SET.jsonl to")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, read in SETS.items():
        rows = read(arguments.data)
        write_principle_rows(arguments.out / f"{name}.jsonl", rows)
        yes = Counter(row.fulfilled for row in rows)[True]
        skewed = sum(min(rate.yes, rate.rows - rate.yes) < 0.1 * rate.rows for rate in base_rates(rows))
        print(
            f"{name:9} {len(rows):6} rows, {len({row.prompt for row in rows}):5} prompts, "
            f"{len(base_rates(rows)):3} principles ({skewed} of them more than 90 % one answer), "
            f"{100 * yes / len(rows):5.1f} % yes, {len(opposite_pairs(rows))} opposite pairs"
        )


if __name__ == "__main__":
    main()
