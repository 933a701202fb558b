"""The models by name, and which one scores a request.

Leaves out: scoring (`served_model`, `rollout.swap`), loading and unloading (`rollout.lifecycle`).
"""

from collections.abc import Iterator
from typing import Protocol

from assay.errors import BadInputError, BusyError, NotFoundError
from assay_serving.model_config import ModelConfig
from assay_serving.server.core.scoring_backend import Client, ScoreRequest, ScoreResponse
from assay_serving.server.models.missing_models import MissingModel, missing_model_error
from assay_serving.server.models.served_model import ServedModel


class NamedModel(Protocol):
    """What serves a name: a model, or two of them during a swap."""

    @property
    def live(self) -> ServedModel:
        """The model that `/v1/models` shows under this name."""
        ...

    async def score(self, request: ScoreRequest) -> ScoreResponse: ...


class ModelRegistry:
    """Used on the event loop only, so every change is atomic.

    Missing models keep their names and aliases, so that no other model is mistaken for one; they are no entries.
    """

    def __init__(self) -> None:
        self._entries: dict[str, NamedModel] = {}
        self._missing: dict[str, MissingModel] = {}
        self._unloaded: dict[str, ModelConfig | None] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def live(self) -> list[ServedModel]:
        return [entry.live for entry in self._entries.values()]

    @property
    def missing(self) -> list[MissingModel]:
        return list(self._missing.values())

    def put(self, name: str, entry: NamedModel) -> None:
        """From now on `entry` serves `name`; the order of names stays."""
        self._missing.pop(name, None)
        self._unloaded.pop(name, None)
        self._entries[name] = entry

    def set_missing(self, model: MissingModel) -> None:
        """Nothing serves its name, which is free."""
        self._missing[model.name] = model

    def remove(self, name: str) -> None:
        """Remove a model, or the record of a missing one."""
        if (missing := self._missing.pop(name, None)) is not None:
            self._unloaded[name] = missing.plan
        else:
            self._unloaded[name] = self._entries.pop(name).live.plan

    def find_missing(self, name: str) -> MissingModel | None:
        return self._missing.get(name)

    def find(self, name: str, client: Client | None = None) -> NamedModel:
        """Raises NotFoundError for an unknown name, BusyError for the name of a missing model, ForbiddenError for a
        name that the client may not use, served or not."""
        if client is not None:
            client.check(name)
        if name in self._missing:
            raise missing_model_error(name, self._missing[name].reason)
        if name not in self._entries:
            served = [each for each in self._entries if client is None or client.may_use(each)]
            raise NotFoundError(f"no such model; served: {', '.join(served) or 'none'}")
        return self._entries[name]

    def pick(self, model: str | None, *, any_name: bool = False, client: Client) -> NamedModel:
        """The model that a request names, by its name or by an unambiguous alias. `any_name`: where one is served, it
        answers to every name but those of models that were unloaded: a client of such a one must notice.

        A client that is limited to models gets these only, as if no others were served, and must use their names.
        Raises NotFoundError for an unknown one, ForbiddenError, BadInputError if none is named and several are served
        (a score by the wrong model looks like a score), BusyError if it is missing or no model is loaded.
        """
        if not (self._entries or self._missing):
            raise BusyError("no model is loaded", retry_after=5)
        names = [*self._entries, *self._missing]
        if client.models is not None:
            names = [name for name in names if client.may_use(name)]
        elif any_name and len(names) == 1 and not self._was_unloaded(model):
            return self.find(names[0])
        if model is not None:
            matches = [name for name in names if self._answers(name, model)]
            return self.find(matches[0] if model not in names and len(matches) == 1 else model, client)
        if not names:
            raise client.refusal("what is served")
        if len(names) > 1:
            raise BadInputError(f"several models are served; name one of {', '.join(names)}", field="model")
        return self.find(names[0])

    def _answers(self, name: str, alias: str) -> bool:
        if name in self._missing:
            return self._missing[name].plan.answers_to(alias)
        return self._entries[name].live.answers_to(alias)

    def _was_unloaded(self, model: str | None) -> bool:
        return model is not None and any(
            model == name or (plan is not None and plan.answers_to(model)) for name, plan in self._unloaded.items()
        )
