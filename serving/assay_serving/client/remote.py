"""A reward server as a `Scorer`, so that evaluation and curation take one where they take a local model."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.errors import BadInputError, NotFoundError, nearest_names
from assay.registry import unknown
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreResult
from assay_serving.client.blocking import RewardClient
from assay_serving.model_reference import is_url
from assay_serving.scorer import ModelInfo, ScoreItem

if TYPE_CHECKING:
    from assay_serving.engines.engine import ModelLoader
    from assay_serving.model_config import ModelConfig

OPTIONS = ("model", "api_key", "ca", "wait", "deadline")


class RemoteScorer:
    """One model of a server. Its description is fetched once, at creation."""

    def __init__(self, client: RewardClient) -> None:
        self.client = client
        infos = [self._served(server, url) for server, url in enumerate(client.urls)]
        self._info = infos[0]
        for url, info in zip(client.urls, infos, strict=True):
            if (info.name, info.version) != (self._info.name, self._info.version):
                raise BadInputError(
                    f"{client.urls[0]} serves {self._info.name}, version {self._info.version}, and {url} {info.name}, "
                    f"version {info.version}: one reward needs servers of one model"
                )

    def _served(self, server: int, url: str) -> ModelInfo:
        """The model that this scorer is, at one of the servers."""
        served = {info.name: info for info in self.client.models(server)}
        model = self.client.settings.model
        if model is None and len(served) > 1:
            raise BadInputError(f"{url} serves several models; name one of {', '.join(served)}")
        if model is not None and model not in served:
            names = f"{', '.join(served)}{nearest_names(model, served)}"
            raise NotFoundError(f"{url} serves no model {model!r}; served: {names}")
        return served[model] if model is not None else next(iter(served.values()))

    @classmethod
    def load(cls, config: "ModelConfig", loader: "ModelLoader | None" = None) -> "RemoteScorer":
        """One model of the server at the config's URL; engine options: those of `model_loader.server_config`.

        No key is sent without one in the options: $ASSAY_API_KEY may be the key of this process's own server. Raises
        BackendError where the server is not ready in time.
        """
        url, options = config.reference, {"api_key": "", **config.engine_options}
        if not is_url(url):
            raise BadInputError(f"a reward server is named by its URL, not {url!r}", field="reference")
        if config.correct is not None:
            raise BadInputError(f"{url} corrects its own scores: start it with assay serve --correct", field="correct")
        if invalid := sorted(set(options) - set(OPTIONS)):
            raise unknown("option of a reward server", invalid[0], OPTIONS, field="engine_options")
        wait = options.pop("wait", 10.0)
        client = RewardClient(url, **options)
        client.wait_until_ready(wait)
        return cls(client)

    @property
    def info(self) -> ModelInfo:
        return self._info

    def score(self, items: Sequence[ScoreItem], on_progress: Advance = silent) -> list[ScoreResult]:
        """See `Scorer.score`."""
        return self.client.score(items, on_progress)
