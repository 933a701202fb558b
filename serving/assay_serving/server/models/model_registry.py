"""Which models there are, and which one answers a request.

Leaves out: how one answers (`served_model`, `swap`), loading and unloading (`lifecycle`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from assay.errors import BadInputError, BusyError, NotFoundError
from assay_serving.scorer import ModelInfo
from assay_serving.server.core.scoring_backend import ScoreAnswer, ScoreRequest
from assay_serving.server.models.missing_models import AbsentModel, absent_error
from assay_serving.server.models.served_model import ServedModel


class Answering(Protocol):
    """What stands behind a name: a model, or two of them while one takes over from the other."""

    @property
    def live(self) -> ServedModel:
        """The model that `/v1/models` shows under this name."""
        ...

    async def answer(self, request: ScoreRequest) -> ScoreAnswer: ...


class Roster:
    """Names and what answers for them. Used on the event loop only, so every change is at once.

    Absent models keep their names and aliases, so that no other model is taken for one; they are no entries.
    """

    def __init__(self) -> None:
        self._entries: dict[str, Answering] = {}
        self._absent: dict[str, AbsentModel] = {}

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
    def absent(self) -> list[AbsentModel]:
        return list(self._absent.values())

    def infos(self) -> list[ModelInfo]:
        return [served.info for served in self.live]

    def put(self, name: str, entry: Answering) -> None:
        """From now on `entry` answers for `name`; its place among the names stays."""
        self._absent.pop(name, None)
        self._entries[name] = entry

    def miss(self, absent: AbsentModel) -> None:
        """Nothing answers for its name, which is free."""
        self._absent[absent.name] = absent

    def remove(self, name: str) -> None:
        """Also of an absent model, which then is none any more."""
        if self._absent.pop(name, None) is None:
            del self._entries[name]

    def find_absent(self, name: str) -> AbsentModel | None:
        return self._absent.get(name)

    def find(self, name: str) -> Answering:
        """Raises NotFoundError for an unknown name, BusyError for the name of an absent model."""
        if name in self._absent:
            raise absent_error(name, self._absent[name].reason)
        if name not in self._entries:
            raise NotFoundError(f"no such model; served: {', '.join(self._entries) or 'none'}")
        return self._entries[name]

    def pick(self, model: str | None) -> Answering:
        """What answers for the model that a request names, by its name or by an alias that no other has.

        Raises NotFoundError for an unknown one, BadInputError if none is named and several are served (a score by the
        wrong model looks like a score), BusyError if it is absent or there is none at all.
        """
        names = [*self._entries, *self._absent]
        if not names:
            raise BusyError("no model is loaded", retry_after=5)
        if model is not None:
            called = [name for name, entry in self._entries.items() if entry.live.answers_to(model)]
            called += [name for name, absent in self._absent.items() if absent.plan.answers_to(model)]
            return self.find(called[0] if model not in names and len(called) == 1 else model)
        if len(names) > 1:
            raise BadInputError(f"several models are served; name one of {', '.join(names)}", field="model")
        return self.find(names[0])
