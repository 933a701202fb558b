"""What could be chosen in the form of a job: what the workspace has, and the members of registries.

By the name of the setting, which means the same in every command. Leaves out: values that only the command knows.
"""

from collections.abc import Sequence

from assay.data.snapshots import POOLS
from assay.registry import all_kinds
from assay.store.database import Connection
from assay.workspace import Workspace
from assay_web.curate.loop_files import begun_loops, judge_files, loop_files, other_files
from assay_web.jobs.forms import JobForm

MOST = 500  #: suggestions of one setting
UPLOADS = "uploads"
_BASES = ("smollm2", "tiny")
_MODELS = "kind = 'reward_model' OR spec ->> 'kind' = 'implicit'"
_QUERIES = {
    "model": f"SELECT name FROM artifacts WHERE {_MODELS} GROUP BY name ORDER BY max(created_at) DESC",
    "policy": "SELECT name FROM artifacts WHERE kind = 'policy' GROUP BY name ORDER BY max(created_at) DESC",
    "snapshot": "SELECT name FROM snapshots ORDER BY created_at DESC",
    "benchmark": "SELECT benchmark FROM benchmarks ORDER BY 1",
    "source": "SELECT DISTINCT source FROM origins ORDER BY 1",
    "category": "SELECT DISTINCT category FROM origins WHERE category IS NOT NULL ORDER BY 1",
    "resume": "SELECT run_id FROM runs WHERE status = 'interrupted' AND kind IN ('train', 'rl') ORDER BY run_id DESC",
}


def with_suggestions(form: JobForm, workspace: Workspace, servers: Sequence[str]) -> JobForm:
    """`servers`: addresses of reward servers that the page knows."""
    with workspace.store.unit() as db:
        stored = {name: _first(db, query) for name, query in _QUERIES.items()}
    by_option = {(kind.option or "").lstrip("-").replace("-", "_"): kind for kind in all_kinds()}
    data = [*stored["snapshot"], *uploads(workspace)]
    by_setting = {
        **stored,
        **dict.fromkeys(("data", "eval_data", "final_data"), data),
        **dict.fromkeys(("best", "gold"), stored["model"]),
        "base": [*_BASES, *stored["model"]],
        "policy": [*_BASES, *stored["policy"]],
        "pool": list(POOLS),
        "path": uploads(workspace),
        "prompts": uploads(workspace),
        "file": uploads(workspace),
        "judges": judge_files(workspace),
        "kind": ["scalar", "principle", "generative"],
        "reward": [*servers, *(by_option["reward"].names() if "reward" in by_option else ())],
        "watch": list(servers),
        "config": _configs(form.kind, workspace),
    }
    for field in form.fields:
        names = by_setting.get(field.name)
        if names is None and not field.choices and field.type in ("text", "list") and field.name in by_option:
            names = by_option[field.name].names()
        field.suggestions = list(names or ())[:MOST]
    return form


def _configs(kind: str, workspace: Workspace) -> list[str]:
    if kind != "stage1":
        return other_files(workspace)
    return [loop.file for loop in loop_files(workspace, begun_loops(workspace)) if loop.problem is None]


def uploads(workspace: Workspace) -> list[str]:
    """Files that were uploaded, as jobs name them."""
    paths = (path for path in (workspace.root / UPLOADS).glob("**/*") if path.is_file())
    names = (path.relative_to(workspace.root).as_posix() for path in paths)
    return sorted(name for name in names if "/." not in name)[:MOST]


def _first(db: Connection, query: str) -> list[str]:
    return [str(row[0]) for row in db.execute(f"{query} LIMIT {MOST}").fetchall()]
