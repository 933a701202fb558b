"""Trust in a checkpoint as a user gets it: card, calibration that stored scores follow, verification, corrections."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from pair_files import write_pairs

from assay.cli.main import main
from assay.domain import Message, PreferencePair
from assay.models.spec import RewardModelSpec
from assay.runs.record import locate_model
from assay.workspace import Workspace
from assay_serving.engines.head_ensemble import HeadEnsembleSpec

WORDS = ["red", "blue", "green", "tree", "stone", "river", "cloud", "apple"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    """(exit code, standard output, standard error) of the command."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), out, err


def noisy_pairs(path: Path, count: int, seed: int, flipped: float = 0.2) -> Path:
    """Mostly `!` beats `?`, so that there is something to learn and something to doubt."""
    rng = random.Random(seed)
    pairs = []
    for number in range(count):
        text = " ".join(rng.choices(WORDS, k=rng.randint(1, 4)))
        sides = [f"{text}!", f"{text} {rng.choice(WORDS)}?"]
        if rng.random() < flipped:
            sides.reverse()
        prompt = (Message("user", f"{seed}-{number}"),)
        pairs.append(PreferencePair(prompt, sides[0], sides[1], source=rng.choice(["a", "b"])))
    write_pairs(path, pairs)
    return path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a trained model `rm`, and files of pairs beside it."""
    root = tmp_path_factory.mktemp("trust")
    Workspace.create(root / "w")
    noisy_pairs(root / "train.jsonl", 96, 1)
    noisy_pairs(root / "gold.jsonl", 60, 2)
    arguments = ["train", "bt", "--data", "train.jsonl", "--eval-data", "gold.jsonl", "--base", "tiny", "--name", "rm"]
    options = ["--lr", "0.005", "--head-lr", "0.005", "--batch-size", "8", "--epochs", "2", "--lora", "4"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        with pytest.raises(SystemExit) as stop:
            main([*arguments, *options, "--device", "cpu", "-w", str(root / "w"), "--json"])
    assert not stop.value.code
    return root


def spec_of(place: Path, name: str = "rm") -> RewardModelSpec:
    spec = RewardModelSpec.read(place / "w" / "models" / name)
    assert spec is not None
    return spec


def test_the_card_is_one_that_the_hub_reads(place: Path) -> None:
    from huggingface_hub import ModelCard

    text = (place / "w" / "models" / "rm" / "README.md").read_text()
    header = ModelCard(text).data.to_dict()  # type: ignore[no-untyped-call]
    assert header["pipeline_tag"] == "text-classification"
    assert "assay" in header["tags"]
    [model] = header["model-index"]
    assert model["results"][0]["metrics"][0]["type"] == "accuracy"
    for section in ("Intended use and limits", "Evaluation", "Calibration", "Length bias", "Configuration", "Parity"):
        assert f"## {section}\n" in text, section
    assert spec_of(place).template_hash in text
    assert "| source | a |" in text  # a slice with its interval
    assert "| saved = loaded | holds |" in text


def test_every_equality_is_in_the_spec(place: Path) -> None:
    checks = {check.name: check for check in spec_of(place).parity_checks}
    assert {"saved = loaded", "batch 1 = batch N", "left = right padding"} <= checks.keys()
    assert all(check.passed and check.compared for check in checks.values())
    assert spec_of(place).head_start == "zero"


def test_calibrating_brings_stored_scores_up_to_date(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where, workspace = ("-w", place / "w"), Workspace.open(place / "w")
    (place / "ask.jsonl").write_text(
        "\n".join(json.dumps({"prompt": "2-1", "response": text}) for text in ("red!", "blue tree?", "apple."))
    )

    def stored() -> list[tuple[float, float | None, str | None]]:
        with workspace.store.unit() as db:
            return db.execute("SELECT reward, probability, calibration FROM scores ORDER BY reward").fetchall()

    score = ("score", "--model", "rm", place / "ask.jsonl", "--save", "--out", place / "scores.jsonl")
    code, _, err = run(capsys, *score, "--device", "cpu", *where)
    assert code == 0, err
    assert [row[1:] for row in stored()] == [(None, None)] * 3
    command = ("calibrate", "--model", "rm", "--data", place / "gold.jsonl", "--device", "cpu", *where)
    code, out, err = run(capsys, *command, "--method", "temperature", "--json")
    assert code == 0, err
    told = json.loads(out)
    assert told["refreshed_scores"] == 3
    assert (told["folds"], told["pairs"], told["chosen_by"]) == (5, 60, "name")
    assert set(told["after"]["intervals"]) == {"rms_error", "brier", "nll"}
    assert told["after"]["intervals"]["nll"]["low"] <= told["after"]["intervals"]["nll"]["high"]
    fitted = spec_of(place).calibration
    assert fitted is not None
    assert fitted.id == told["id"]
    assert [(p, k) for _, p, k in stored()] == [(fitted.probability(r), fitted.id) for r, _, _ in stored()]
    assert f"{fitted.measured['after']['nll']:.4f}" in (place / "w" / "models" / "rm" / "README.md").read_text()

    code, out, err = run(capsys, *command, "--method", "isotonic")
    assert code == 0, err
    assert "left-out folds" in out
    assert "reliability after" in out
    [run_id] = [line.split()[-1] for line in out.splitlines() if line.startswith("drawn: assay report")]
    code, _, err = run(capsys, "report", run_id, "--out", place / "page.html", *where)
    assert code == 0, err
    page = (place / "page.html").read_text()
    assert page.count("<svg") == 3  # reliability before and after, the figures
    assert "After, on folds left out of the fit" in page
    newer = spec_of(place).calibration
    assert newer is not None
    assert newer.id != fitted.id
    assert spec_of(place).version == told["version"]
    assert [(p, k) for _, p, k in stored()] == [(newer.probability(r), newer.id) for r, _, _ in stored()]
    with workspace.store.unit() as db:
        kept = {row[0] for row in db.execute("SELECT calibration_id FROM calibrations").fetchall()}
    assert kept == {fitted.id, newer.id}

    code, _, err = run(capsys, *score, "--device", "cpu", *where)  # scoring again takes nothing back
    assert code == 0, err
    assert {k for _, _, k in stored()} == {newer.id}
    line = json.loads((place / "scores.jsonl").read_text().splitlines()[0])
    assert line["score"]["calibration"] == newer.id


@pytest.mark.slow
def test_verifying_marks_a_checkpoint_that_fails_and_every_command_refuses_it(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    where = ("-w", place / "w")
    code, out, err = run(capsys, "verify", "rm", "--device", "cpu", *where)
    assert code == 0, err
    assert "engine = stock transformers" in out
    assert "parity passed" in out
    assert "loaded = loaded again" in {check.name for check in spec_of(place).parity_checks}
    folder = tmp_path / "copy"
    shutil.copytree(place / "w" / "models" / "rm", folder)
    code, out, _ = run(capsys, "verify", folder, "--device", "cpu", "--tolerance", "1e-12", *where)
    assert code == 5
    assert "parity failed" in out
    marked = RewardModelSpec.read(folder)
    assert marked is not None
    assert marked.parity.startswith("failed: response")
    assert "FAILS" in (folder / "README.md").read_text()
    gold = place / "gold.jsonl"
    asked: dict[str, tuple[str | Path, ...]] = {
        "score": ("score", "--model", folder, "--prompt", "x", "--response", "y", "--device", "cpu"),
        "eval": ("eval", "--model", folder, "--data", gold, "--limit", "8", "--device", "cpu"),
        "calibrate": ("calibrate", "--model", folder, "--data", gold, "--method", "temperature", "--device", "cpu"),
        "length-bias": ("length-bias", "--model", folder, "--data", gold, "--limit", "8", "--device", "cpu"),
        "ensemble": ("ensemble", folder, "rm", "--data", gold, "--limit", "8", "--name", "e", "--device", "cpu"),
        "serve": ("serve", folder, "--port", "0", "--device", "cpu"),
    }
    for name, command in asked.items():
        code, _, err = run(capsys, *command, *where)
        assert code == 2, name
        assert "parity" in err, name
        if name != "serve":
            code, _, err = run(capsys, *command, "--allow-failed-parity", *where)
            assert code == 0, (name, err)
    code, _, err = run(capsys, "merge", folder, "rm", "--data", gold, "--name", "m", "--device", "cpu", *where)
    assert code == 2
    assert "parity" in err


def test_what_training_found_is_not_made_good_later(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(place / "w" / "models" / "rm", folder)
    spec = RewardModelSpec.read(folder)
    assert spec is not None
    first, *others = spec.parity_checks
    broken = replace(first, passed=False, detail="response 3: 1 != 2")
    replace(spec, parity="failed", parity_checks=(broken, *others)).write(folder)
    code, out, _ = run(capsys, "verify", folder, "--device", "cpu", "--json", "-w", place / "w")
    assert code == 5
    assert json.loads(out)["parity"].startswith("failed: response 3: 1 != 2")


@pytest.mark.slow
def test_a_checkpoint_from_elsewhere_is_adopted(
    place: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    folder = tmp_path / "stranger"
    shutil.copytree(place / "w" / "models" / "rm", folder, ignore=shutil.ignore_patterns("assay.json", "README.md"))
    assert run(capsys, "verify", folder, "--device", "cpu", "-w", place / "w")[0] == 0
    assert RewardModelSpec.read(folder) is None
    fit = ("--method", "temperature", "--device", "cpu", "-w", place / "w")
    command = ("calibrate", "--model", folder, "--data", place / "gold.jsonl", *fit)
    code, _, err = run(capsys, *command)
    assert code == 2
    assert "assay verify --adopt" in err
    assert run(capsys, "verify", folder, "--adopt", "--device", "cpu", "-w", place / "w")[0] == 0
    assert RewardModelSpec.read(folder) is not None
    assert run(capsys, *command)[0] == 0


def test_a_length_correction_is_kept_under_its_name_and_used_on_request(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--device", "cpu", "-w", place / "w")
    code, out, err = run(
        capsys, "length-bias", "--model", "rm", "--data", place / "gold.jsonl", "--fit", "linear", "--write", "shorter",
        *where,
    )  # fmt: skip
    assert code == 0, err
    assert "given the label" in out
    assert "length in tokens" in " ".join(out.split())
    assert "accuracy by mixing" in out
    [kept] = spec_of(place).length_corrections
    assert (kept.name, kept.responses) == ("shorter", 120)
    assert kept.measured["folds"] == 5
    ask = ("score", "--model", "rm", "--prompt", "x", "--response", "red tree!", "--json", *where)
    raw = json.loads(run(capsys, *ask)[1])["scores"][0]
    under = json.loads(run(capsys, *ask, "--correct", "shorter")[1])["scores"][0]
    assert under["reward"] == pytest.approx(kept.corrected(raw["reward"], len("red tree!")))
    assert under["version"] == f"{raw['version']}+{kept.id}"
    assert under["probability"] is None
    calibrate = ("calibrate", "--model", "rm", "--data", place / "gold.jsonl", "--method", "temperature", *where)
    assert run(capsys, *calibrate, "--correct", "shorter")[0] == 0
    again = json.loads(run(capsys, *ask, "--correct", "shorter")[1])["scores"][0]
    assert again["probability"] is not None
    assert again["calibration"] == spec_of(place).length_corrections[0].calibration.id  # type: ignore[union-attr]
    evaluate = ("eval", "--model", "rm", "--data", place / "gold.jsonl", "--json", *where)
    found = [json.loads(run(capsys, *evaluate, *more)[1]) for more in ((), ("--correct", "shorter"))]
    assert found[0]["model"]["version"] != found[1]["model"]["version"]
    code, _, err = run(capsys, "score", "--reward", "http://127.0.0.1:9", *ask[3:7], "--correct", "shorter")
    assert code == 2
    assert "assay serve --correct" in err
    code, _, err = run(capsys, *ask, "--correct", "other")
    assert code == 2
    assert "no length correction 'other'" in err


@pytest.mark.slow
def test_heads_of_ratings_give_each_rating_an_uncertainty(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = random.Random(3)
    rows = [" ".join(rng.choices(["red", "blue", "tree", "stone"], k=rng.randint(1, 6))) for _ in range(80)]
    for name, part in (("rated", rows[:60]), ("held", rows[60:])):
        lines = [
            {
                "prompt": f"{name}-{n}",
                "response": text,
                "ratings": {"length": len(text.split()), "red": text.count("red")},
            }
            for n, text in enumerate(part)
        ]
        (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    where = ("--device", "cpu", "-w", place / "w", "--json")
    command = ("train", "probe", "--data", place / "rated.jsonl", "--base", "tiny", "--name", "rating-heads")
    held = ("--eval-data", place / "held.jsonl")
    code, out, err = run(capsys, *command, "--ratings", "length,red", "--members", "4", *held, *where)
    assert code == 0, err
    trained = json.loads(out)
    assert (trained["members"], trained["responses"]) == (4, 60)
    assert trained["evaluation"]["own"]["length"]["low"] > 0.3
    score = ("score", "--model", "rating-heads", "--prompt", "held-0", "--response", "red tree", *where)
    code, out, err = run(capsys, *score)
    assert code == 0, err
    [told] = json.loads(out)["scores"]
    assert [part["name"] for part in told["parts"]] == ["length", "red"]
    assert all(part["uncertainty"] > 0 for part in told["parts"])
    assert sum(part["value"] for part in told["parts"]) / 2 == pytest.approx(told["reward"])
    code, _, err = run(capsys, *command, "--force", "--ratings", "depth", *where)
    assert (code, "no row has the rating 'depth'" in err) == (2, True)
    for names in (",", "red,red"):
        code, _, err = run(capsys, *command, "--force", "--ratings", names, *where)
        assert (code, "name the ratings, each once" in err) == (2, True)


@pytest.mark.slow
def test_an_ensemble_of_heads_is_trained_measured_and_used_as_any_model(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ("--device", "cpu", "-w", place / "w")
    command = ("train", "probe", "--data", place / "train.jsonl", "--base", "rm", "--name", "heads", "--l2", "0.3")
    code, out, err = run(capsys, *command, "--members", "4", "--eval-data", place / "gold.jsonl", *where)
    assert code == 0, err
    assert "accuracy by thirds of uncertainty" in out
    assert "4 heads (laplace); deviations times " in out
    folder = place / "w" / "models" / "heads"
    spec = HeadEnsembleSpec.read(folder)
    assert (spec.members, spec.l2, spec.backbone) == (4, 0.3, "../rm")
    assert spec.uncertainty is not None
    assert f"it {spec.uncertainty['verdict']}" in (folder / "README.md").read_text()
    workspace = Workspace.open(place / "w")
    with workspace.store.unit() as db:
        links = db.execute("SELECT ref FROM run_links WHERE run_id = ? AND kind = 'artifact'", [spec.run_id]).fetchall()
    assert {(locate_model(workspace, name)[1],) for name in ("rm", "heads")} == set(links)

    score = ("score", "--model", "heads", "--prompt", "2-1", "--response", "red!", "--json", *where)
    code, out, err = run(capsys, *score)
    assert code == 0, err
    [told] = json.loads(out)["scores"]
    assert told["version"] == spec.version
    assert sum(part["value"] for part in told["parts"]) / 4 == pytest.approx(told["reward"])
    code, out, err = run(capsys, "calibrate", "--model", "heads", "--data", place / "gold.jsonl", *where)
    assert code == 0, err
    assert HeadEnsembleSpec.read(folder).calibration is not None
    code, out, err = run(capsys, "eval", "--model", "heads", "--data", place / "gold.jsonl", "--json", *where)
    assert code == 0, err
    uncertainty = json.loads(out)["uncertainty"]
    assert uncertainty["factor"] == pytest.approx(1.0, rel=0.05)  # it was scaled on these pairs
    assert uncertainty["verdict"] == spec.uncertainty["verdict"]

    code, _, err = run(capsys, *command[:-4], "--name", "h2", "--combine", "min", *where)
    assert code == 2
    assert "--members" in err
    code, _, err = run(capsys, *command[:-4], "--name", "h2", "--members", "1", *where)
    assert (code, "members" in err) == (2, True)
    (place / "w" / "models" / "rm" / "generation_config.json").write_text("{}")  # another version of the backbone
    code, _, err = run(capsys, *score)
    (place / "w" / "models" / "rm" / "generation_config.json").unlink()
    assert code == 2
    assert f"its heads were fitted on ../rm of version {spec.backbone_version}, which is now" in err
