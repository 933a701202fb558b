"""A Label Studio server through its SDK: opening a client, its errors as one clear line, tasks page by page by id.

The key comes from the environment and is never stored. The SDK is an extra: it forces an older numpy, and cannot share
an environment with vLLM.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from assay.errors import BackendError, BadInputError, BusyError, NotFoundError

if TYPE_CHECKING:
    from label_studio_sdk import LabelStudio

KEY = "LABEL_STUDIO_API_KEY"
TIMEOUT_S = 120.0
PAGE = 200  #: tasks in one request: the server takes over a minute for tens of thousands at once
#: What is read of annotations. The server takes such a list for a task and for everything in it alike.
ANNOTATION_FIELDS = (
    "annotations",
    "result",
    "completed_by",
    "was_cancelled",
    "updated_at",
    "lead_time",
    "parent_prediction",
    "task",
    "project",
)


def server_address(url: str) -> str:
    """The one spelling of an address under which it is stored. Raises BadInputError for what is no http address."""
    parts = urlsplit(url.strip())
    try:
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        sound = False
    if not sound:
        raise BadInputError(f"not the address of a server: {url!r}; e.g. http://localhost:8080")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise BadInputError(f"the address of a server carries no user, key or query; the key comes from ${KEY}")
    return f"{parts.scheme}://{parts.netloc.lower()}{parts.path.rstrip('/')}"


def connect(server: str) -> "LabelStudio":
    """A client for `server_address(...)` with the key in $LABEL_STUDIO_API_KEY. Nothing is sent yet.

    Raises BackendError without the extra, BadInputError without a key.
    """
    key = os.environ.get(KEY, "").strip()
    if not key:
        raise BadInputError(f"no key for {server}: set ${KEY} (Label Studio, Account & Settings, Access Token)")
    try:
        from label_studio_sdk import LabelStudio
    except ImportError as error:
        raise BackendError(
            f"the Label Studio SDK cannot be imported ({error}): pip install 'assay[label-studio]'"
        ) from error
    with said_clearly(server):  # a personal access token is checked while the client is made
        return LabelStudio(base_url=server, api_key=key, timeout=TIMEOUT_S)


@contextmanager
def said_clearly(server: str, what: str = "") -> Iterator[None]:
    """Turn what the SDK raises into Assay's errors. `what`: the thing asked for, e.g. "project 3".

    The SDK's own texts hold the whole reply with its cookies: only the server's own message is passed on.
    """
    import httpx
    from label_studio_sdk.core.api_error import ApiError
    from pydantic import ValidationError

    try:
        yield
    except ApiError as error:
        message = _detail(error.body)
        about = f"{server}{', ' + what if what else ''}: {message}"
        if error.status_code == 404:
            raise NotFoundError(f"{server} has no {what or 'such thing'}") from error
        if error.status_code in (401, 403) and "reserved network address" not in message:
            raise BadInputError(f"{about.rstrip('.')}; is ${KEY} the key of a user who may do this?") from error
        if error.status_code in (429, 503):
            raise BusyError(about) from error
        kind = BadInputError if error.status_code is not None and 400 <= error.status_code < 500 else BackendError
        raise kind(about) from error
    except httpx.HTTPError as error:
        raise BackendError(f"no answer from {server}: {error or type(error).__name__}") from error
    except (ValidationError, json.JSONDecodeError) as error:
        raise BackendError(f"{server} does not answer as Label Studio does") from error


def iter_tasks(
    client: "LabelStudio", server: str, project_id: int, fields: Sequence[str], *, after: int = 0, page: int = PAGE
) -> Iterator[list[dict[str, Any]]]:
    """Pages of a project's tasks, those above `after`, in the order of their ids; of each its id and `fields`.

    By id and not by page number: a task deleted meanwhile then makes no other one slip between two pages. Few fields,
    because the server takes several times as long for all (measured: 7 ms a task, not 1).
    """
    while True:
        query = {
            "filters": {
                "conjunction": "and",
                "items": [{"filter": "filter:tasks:id", "operator": "greater", "type": "Number", "value": after}],
            },
            "ordering": ["tasks:id"],
        }
        with said_clearly(server, f"project {project_id}"):
            batch = client.tasks.list(
                project=project_id,
                fields="all",
                include=",".join(("id", *fields)),
                query=json.dumps(query),
                page=1,
                page_size=page,
                resolve_uri=False,
            )
            tasks = [task.model_dump() for task in batch.items or []]
        if not tasks:
            return
        tasks.sort(key=lambda task: int(task["id"]))
        if int(tasks[0]["id"]) <= after:
            raise BackendError(f"{server} ignores the filter on task ids: its version is not supported")
        yield tasks
        after = int(tasks[-1]["id"])


def exists(client: "LabelStudio", server: str, kind: str, number: int) -> bool:
    """Whether a task or an annotation is there, asked by its number."""
    try:
        with said_clearly(server, f"{kind} {number}"):
            if kind == "task":
                client.tasks.get(id=str(number))
            else:
                client.annotations.get(id=number)
    except NotFoundError:
        return False
    return True


def _detail(body: object) -> str:
    if not isinstance(body, dict):
        return " ".join(str(body).split())[:300] or "no reason given"
    wrong = body.get("validation_errors")
    if isinstance(wrong, dict) and wrong:
        return "; ".join(f"{field}: {_joined(messages)}" for field, messages in wrong.items())[:500]
    return str(body.get("detail") or body)[:300]


def _joined(messages: object) -> str:
    return ", ".join(str(s) for s in messages) if isinstance(messages, list) else str(messages)
