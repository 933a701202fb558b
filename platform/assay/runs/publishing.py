"""A model of the workspace for others: its files and a card, in a folder or pushed to a model hub.

Covers: the card of a policy, from its run (reward models come with theirs), the copy without paths of this machine,
the push by huggingface_hub ($HF_TOKEN says who pushes, $HF_ENDPOINT names another hub). Leaves out: data sets (`assay
data export`), checkpoints of a run (`assay export-policy`).
"""

import json
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assay import __version__
from assay.errors import AssayError, BackendError, BadInputError, NotFoundError
from assay.models import spec
from assay.models.contamination import read_uses
from assay.models.hub import hub_id
from assay.runs.evaluation_table import HEAD, evaluation_tables
from assay.runs.record import MODEL_KINDS, find_artifact
from assay.system.atomic_files import replacing_folder
from assay.workspace import Workspace

CARD = "README.md"
WEIGHTS = ["*.safetensors", "*.safetensors.index.json", "*.bin"]  #: of an earlier push, which a new one replaces
_ABSOLUTE = re.compile(r"""(?<![\w/.])/(?!/)[^\s`"'|,:;()@]+""")


def write_model(workspace: Workspace, name: str, target: Path) -> None:
    """Write a model, a name or id of the workspace, with its card to `target`, a folder that is not there yet.

    Raises NotFoundError for an unknown model, BadInputError for a folder in the way.
    """
    path, artifact = _located(workspace, name)
    if not path.is_dir():
        raise BadInputError(f"{name} is one file, {path}: only folders are published", field="MODEL")
    if target.exists():
        raise BadInputError(f"{target} is there already: name a new folder", field="--to")
    target.parent.mkdir(parents=True, exist_ok=True)
    with replacing_folder(target, ours=CARD) as folder:
        shutil.copytree(path, folder, dirs_exist_ok=True)
        if not (folder / CARD).is_file():
            (folder / CARD).write_text(policy_card(workspace, artifact, path), encoding="utf-8")
        for file in (folder / CARD, folder / spec.FILE):
            if file.is_file():
                file.write_text(_without_folders(file.read_text(encoding="utf-8")), encoding="utf-8")


def push_model(workspace: Workspace, name: str, repository: str, *, public: bool = False, revision: str = "") -> str:
    """Push a model with its card to OWNER/NAME of the hub, made if need be, and private unless `public`; returns the
    URL of the commit. `revision`: a branch, made if need be.

    Raises as `write_model`; BadInputError for what is no repository's name, BackendError for what the hub refuses or
    where it cannot be reached.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HFValidationError

    if hub_id(repository) is None:
        raise BadInputError(f"{repository!r} is not OWNER/NAME of a model hub", field="--hub")
    with tempfile.TemporaryDirectory(prefix="assay-publish-") as scratch:
        folder = Path(scratch) / "model"
        write_model(workspace, name, folder)
        api = HfApi(library_name="assay", library_version=__version__)
        try:
            api.create_repo(repository, private=not public, exist_ok=True)
            if not public and not api.repo_info(repository).private:
                raise BadInputError(
                    f"{repository} is there already and public: push to it with --public", field="--hub"
                )
            if revision:
                api.create_branch(repository, branch=revision, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repository,
                folder_path=folder,
                commit_message=f"{name}, by Assay",
                revision=revision or None,
                delete_patterns=WEIGHTS,
            )
        except AssayError:
            raise
        except HFValidationError as error:
            raise BadInputError(_line(error), field="--hub") from error
        except Exception as error:  # the hub's library raises its HTTP client's errors, too, another in each version
            raise BackendError(f"{repository} was not pushed to {api.endpoint}: {_line(error)}") from error
    return str(commit.commit_url)


def policy_card(workspace: Workspace, artifact: str, path: Path) -> str:
    """Markdown with the metadata header that model hubs read, from the record of the run that made the policy.

    No server's address is in it.
    """
    from huggingface_hub import ModelCardData

    with workspace.store.unit() as db:
        name, run, *texts = db.execute(
            """SELECT a.name, a.run_id, a.spec, r.config, r.metrics FROM artifacts a LEFT JOIN runs r USING (run_id)
               WHERE artifact_id = ?""",
            [artifact],
        ).fetchall()[0]
        models = db.execute(
            """SELECT coalesce(name, ref) FROM run_links l LEFT JOIN artifacts a ON a.artifact_id = l.ref
               WHERE l.run_id = ? AND direction = 'input'
                 AND (l.kind = 'model_version' OR l.kind = 'artifact' AND a.kind = 'reward_model')""",
            [run],
        ).fetchall()
    settings, config, metrics = (json.loads(text) if text else {} for text in texts)
    recipe, base = _public(config.get("recipe") or {}), str(settings.get("base", ""))
    header = ModelCardData(
        base_model=hub_id(base),
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=["assay", "rlhf", *([settings["recipe"]] if settings.get("recipe") else [])],
    )
    rows = {
        "base": _public(base),
        "recipe": f"{recipe.get('name', 'unknown')} {recipe.get('paper') or ''}".strip(),
        "rewards": ", ".join(map(_public, config.get("rewards", []))),
        "reward models": ", ".join(model for (model,) in models),
        "prompts": ", ".join(map(_public, config.get("prompts", []))),
        "steps": f"{metrics.get('saved_step', metrics.get('steps', 'unknown'))} of {recipe.get('steps', 'unknown')}",
        "stopped early": metrics.get("stopped_early") or "",
        "run": run or "outside a workspace",
        "benchmarks in its training data": "; ".join(map(str, read_uses(path))) or "none registered",
        "made by": f"Assay {__version__}",
    }
    lines = ["---", header.to_yaml().strip(), "---", "", f"# {name}", "", "A policy trained with rewards.", ""]
    lines += ["| | |", "|---|---|", *(f"| {key} | {_cell(value)} |" for key, value in rows.items() if value)]
    lines += ["", "## Evaluation", "", *_evaluation_lines(metrics)]
    if metrics.get("warnings"):
        lines += ["", "## Warnings", "", *(f"- {_cell(warning)}" for warning in metrics["warnings"])]
    lines += ["", "## Settings", "", "```json", json.dumps(recipe, indent=2), "```"]
    return "\n".join(lines) + "\n"


def _evaluation_lines(metrics: Mapping[str, Any]) -> Iterator[str]:
    """A table for each set of held-out prompts; its head has the coverage."""
    tables = list(evaluation_tables(metrics))
    if not tables:
        yield "Not evaluated (`--evaluate`)."
    for title, rows in tables:
        yield from (_public(title), "", f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|")
        yield from (f"| {' | '.join(map(_cell, row))} |" for row in rows)
        yield ""


def _located(workspace: Workspace, name: str) -> tuple[Path, str]:
    model = find_artifact(workspace, name, MODEL_KINDS)
    if model is None or not model[0].exists():
        raise NotFoundError(f"no model {name!r} in {workspace.root}; assay models lists them")
    return model


def _public(value: Any) -> Any:
    """The value without addresses of servers."""
    if isinstance(value, Mapping):
        return {key: _public(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_public(part) for part in value]
    if not isinstance(value, str) or not ("://" in value or value.startswith("ray:")):
        return value
    address, _, model = value.partition("#")
    name = f"{address.partition('=')[0]}=" if "=" in address.partition("://")[0] else ""
    return f"{name}a server" + (f" of {model}" if model else "")


def _without_folders(text: str) -> str:
    """The text with files and folders of this machine, which may be gone, by their names alone."""

    def name(match: re.Match[str]) -> str:
        path = Path(match[0])
        return path.name if len(path.parts) > 3 or path.exists() else match[0]

    return _ABSOLUTE.sub(name, text)


def _cell(value: object) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
