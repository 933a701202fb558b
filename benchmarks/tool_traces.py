"""Does a reward model judge better with the results of tools in its context? On Themis's recorded traces (TARA).

The experiment of docs/reward-models/generative.md, "With and without tools". A Bradley-Terry head on frozen states of
SmolLM2-135M (after --layers layers, at the last token of a text that ends with a question) is fitted on pairs whose two
responses each come with the trace of a tool. Three arms that differ in the text alone:

    without  question, response
    call     ... and the tool's name and input
    with     ... and its result

Several draws of training, development and test pairs (--seeds), the head's penalty chosen on development pairs.
Features are computed once a pair and kept in --cells, a line a pair, in an order in which the tools take turns: a run
that was cut goes on, and --report reads what there is.

    python benchmarks/tool_traces.py --data tara_tool_pairs.jsonl.gz --pairs 200 --cells traces.cells.jsonl --json
"""

import base64
import json
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from assay.data.json_lines import Lines, parse_object
from assay.errors import BadInputError
from assay_rm_training.generative.tool_traces import trace_in
from assay_rm_training.methods.probe import fit_head
from assay_serving.tools.tool import ToolTurn
from measure import Report, arguments

MEASURES = (
    "rm_training/assay_rm_training/generative",
    "rm_training/assay_rm_training/methods/probe.py",
)

Floats = npt.NDArray[np.float64]
ARMS = ("without", "call", "with")
L2 = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003)
DEVELOPMENT, TEST = 0.15, 0.25  #: shares of the pairs
LONGEST, LONGEST_TRACE = 160, 260  #: tokens of a response, and of a trace
ASK = "Is the answer right? Reply Yes or No:"


@dataclass(frozen=True)
class TracedPair:
    """`responses`: the better one first. `tool`: the kind of row."""

    name: str
    tool: str
    question: str
    responses: tuple[str, str]
    traces: tuple[tuple[ToolTurn, ...], tuple[ToolTurn, ...]]


@dataclass(frozen=True)
class PairFeatures:
    """`sides`: of each arm [2, H], the better response first. `longer`: the better response has more characters."""

    name: str
    tool: str
    longer: bool
    sides: Mapping[str, npt.NDArray[np.float32]]


def main() -> None:
    parser = arguments(__doc__ or "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--layers", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cells", type=Path, default=Path("tool_traces.cells.jsonl"))
    parser.add_argument("--report", action="store_true", help="Compute no further features.")
    options = parser.parse_args()
    pairs = list(drawn(options.data, 20 if options.quick else options.pairs))
    known = read_cells(options.cells, options.layers)
    if not options.report:
        compute(pairs, known, options.cells, options.layers)
    ready = [known[pair.name] for pair in pairs if pair.name in known]
    report = Report("tool_traces", measures=MEASURES)
    measured = measure(ready, options.seeds)
    print(f"{len(ready)} of {len(pairs)} pairs, {options.seeds} draws")
    for name, (mean, low, high) in measured.items():
        print(f"  {name:28} {mean:+.3f} [{low:+.3f}, {high:+.3f}]")
    report.ratios["accuracy with tools / without"] = measured["with"][0] / measured["without"][0]
    report.figures.update({name: list(interval) for name, interval in measured.items()} | {"pairs": len(ready)})
    report.finish(options)


def drawn(path: Path, count: int) -> Iterator[TracedPair]:
    """`count` pairs, the kinds of tools in turn, each in a random order of its own; pairs without a call are left
    out."""
    by_tool: dict[str, list[TracedPair]] = defaultdict(list)
    for _, line in Lines(path):
        record = parse_object(line)
        traces = (trace_in(record, "chosen"), trace_in(record, "rejected"))
        if all(traces):
            question, texts = record["prompt"][-1]["content"], (record["chosen"], record["rejected"])
            tool = str(record["category"]).removeprefix("tool/")
            by_tool[tool].append(TracedPair(str(record["id"]), tool, question, texts, traces))
    for tool, rows in sorted(by_tool.items()):
        random.Random(f"order {tool}").shuffle(rows)
    turns = [rows[number] for number in range(count) for _, rows in sorted(by_tool.items()) if number < len(rows)]
    yield from turns[:count]


def texts_of(trace: Sequence[ToolTurn]) -> dict[str, str]:
    """What follows question and response, by arm, before the question that ends it."""
    calls = [
        (result.call.name, str(result.call.arguments.get("input", "")), result)
        for turn in trace
        for result in turn.results
    ]
    return {
        "without": "",
        "call": "".join(f"Tool: {name}({given})\n" for name, given, _ in calls),
        "with": "".join(f"Tool: {name}({given})\nResult: {result.content}\n" for name, given, result in calls),
    }


def compute(pairs: Sequence[TracedPair], known: dict[str, PairFeatures], cells: Path, layers: int) -> None:
    """Features of the pairs that have none, each written as it is ready."""
    import torch

    from assay.models.attention.packing import TokenGroup, forward
    from assay.models.loading import load_causal_lm, load_tokenizer

    tokenizer = load_tokenizer("smollm2")
    model: Any = load_causal_lm("smollm2", tokenizer, dtype=torch.float32, device=torch.device("cpu"))
    model.model.layers = model.model.layers[:layers]

    def ids(text: str, most: int | None = None) -> npt.NDArray[np.int32]:
        return np.asarray(tokenizer(text, add_special_tokens=False)["input_ids"][:most], np.int32)

    for pair in pairs:
        if pair.name in known:
            continue
        groups = []
        for response, trace in zip(pair.responses, pair.traces, strict=True):
            prefix = np.concatenate([ids(f"Question: {pair.question}\nAnswer: "), ids(response, LONGEST), ids("\n")])
            texts = texts_of(trace)
            branches = tuple(np.concatenate([ids(texts[arm], LONGEST_TRACE), ids(ASK)]) for arm in ARMS)
            groups.append(TokenGroup(prefix, branches))
        with torch.inference_mode():
            states = forward(model, groups).last().float().numpy()
        states = states.astype("<f2").astype(np.float32)  # as they are kept
        sides = {arm: states[[n, n + len(ARMS)]] for n, arm in enumerate(ARMS)}
        longer = len(pair.responses[0]) > len(pair.responses[1])
        known[pair.name] = PairFeatures(pair.name, pair.tool, longer, sides)
        line = {"name": pair.name, "tool": pair.tool, "longer": longer, "layers": layers}
        line["sides"] = {
            arm: base64.b64encode(values.astype("<f2").tobytes()).decode() for arm, values in sides.items()
        }
        with cells.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(f"  {len(known)} of {len(pairs)} pairs", flush=True)


def read_cells(path: Path, layers: int) -> dict[str, PairFeatures]:
    known: dict[str, PairFeatures] = {}
    for _, line in Lines(path) if path.is_file() else ():
        cell = parse_object(line)
        if cell["layers"] != layers:
            raise BadInputError("holds features of other layers; name another file", file=path, field="--layers")
        sides = {
            arm: np.frombuffer(base64.b64decode(values), "<f2").reshape(2, -1).astype(np.float32)
            for arm, values in cell["sides"].items()
        }
        known[cell["name"]] = PairFeatures(cell["name"], cell["tool"], cell["longer"], sides)
    return known


def measure(pairs: Sequence[PairFeatures], seeds: int) -> dict[str, tuple[float, float, float]]:
    """Accuracies of the arms, and differences from `without` on the same draws: mean and 95 % interval over draws."""
    by_name: dict[str, list[float]] = defaultdict(list)
    for seed in range(seeds):
        train, development, test = split(pairs, seed)
        right: dict[str, npt.NDArray[np.bool_]] = {}
        for arm in ARMS:
            right[arm] = predictions(arm, train, development, test)
            by_name[arm].append(float(right[arm].mean()))
        by_name["longer response"].append(statistics.fmean(pair.longer for pair in test))
        for arm in ARMS[1:]:
            by_name[f"{arm} - without"].append(float(right[arm].mean() - right["without"].mean()))
        by_name["with - call"].append(float(right["with"].mean() - right["call"].mean()))
        for tool in sorted({pair.tool for pair in test}):
            of = np.array([pair.tool == tool for pair in test])
            for arm in ("without", "with"):
                by_name[f"{arm}, {tool}"].append(float(right[arm][of].mean()))
            by_name[f"with - without, {tool}"].append(float(right["with"][of].mean() - right["without"][of].mean()))
    return {name: interval(values) for name, values in by_name.items()}


def split(
    pairs: Sequence[PairFeatures], seed: int
) -> tuple[list[PairFeatures], list[PairFeatures], list[PairFeatures]]:
    """Training, development and test pairs, each kind of tool in the same shares."""
    parts: tuple[list[PairFeatures], list[PairFeatures], list[PairFeatures]] = ([], [], [])
    for tool in sorted({pair.tool for pair in pairs}):
        rows = sorted((pair for pair in pairs if pair.tool == tool), key=lambda pair: pair.name)
        random.Random(f"{seed} {tool}").shuffle(rows)
        test, development = round(TEST * len(rows)), round(DEVELOPMENT * len(rows))
        parts[2].extend(rows[:test])
        parts[1].extend(rows[test : test + development])
        parts[0].extend(rows[test + development :])
    return parts


def predictions(
    arm: str, train: Sequence[PairFeatures], development: Sequence[PairFeatures], test: Sequence[PairFeatures]
) -> npt.NDArray[np.bool_]:
    """Of each test pair, whether the better response has the higher reward; the penalty is the development pairs'."""
    both = np.concatenate([pair.sides[arm] for pair in train]).astype(np.float64)
    mean, scale = both.mean(0), both.std(0) + 1e-6

    def differences(of: Sequence[PairFeatures]) -> Floats:
        sides = (np.stack([pair.sides[arm] for pair in of]).astype(np.float64) - mean) / scale
        margins: Floats = sides[:, 0] - sides[:, 1]
        return margins

    fitted, held_out, measured = differences(train), differences(development), differences(test)
    heads = [fit_head(fitted, np.ones(len(fitted)), l2=l2) for l2 in L2]
    losses = [float(np.logaddexp(0.0, -(held_out @ head)).mean()) for head in heads]
    right: npt.NDArray[np.bool_] = measured @ heads[int(np.argmin(losses))] > 0
    return right


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean over draws and its 95 % interval by the corrected resampled t test (Nadeau and Bengio 2003): draws share
    their pairs, so that the variance of the mean is s^2 (1 / draws + test / training pairs)."""
    mean, ratio = statistics.fmean(values), TEST / (1 - TEST - DEVELOPMENT)
    half = float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) * (1 / len(values) + ratio) ** 0.5
    return mean, mean - half, mean + half


if __name__ == "__main__":
    main()
