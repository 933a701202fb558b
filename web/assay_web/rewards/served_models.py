"""The reward servers of this web server, queried with `RewardClient`.

Covers: their models, and the scores of one query by several models. Leaves out: loading models, which the web server
never does. Browsers see a server's URL without credentials; its key never leaves this process.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from assay.domain import Prompt
from assay.errors import AssayError, NotFoundError
from assay.score import Score, ScoreFailure
from assay_serving.client import PrincipleUse, Ranking, RewardClient
from assay_serving.preference import Basis, PairRule, rank
from assay_serving.scorer import ModelInfo, ScoreItem
from assay_web.settings import RewardServer

LOOK_S = 5.0  #: for what a server serves
ASK_S = 60.0  #: for scores
AT_ONCE = 8


@dataclass(frozen=True)
class Served:
    """One model of a server, and what it does with principles."""

    info: ModelInfo
    principles: PrincipleUse


@dataclass(frozen=True)
class Offer:
    """A server's models; `error` if it does not answer or refuses."""

    address: str
    models: tuple[Served, ...] = ()
    error: str | None = None


@dataclass(frozen=True)
class ScoreQuery:
    """What is asked of every model. `label`: what verifiers in composed rewards check against."""

    prompt: Prompt
    responses: tuple[str, ...]
    principles: tuple[str, ...] = ()
    label: str | None = None


@dataclass(frozen=True)
class Column:
    """One model's scores of the responses, by one principle or none. `refused`: why the model was not asked.
    `best_beats_second`: P(first of the ranking is preferred to the second), and what it rests on."""

    address: str
    model: str
    info: ModelInfo | None
    principle: str | None = None
    ranking: Ranking | None = None
    refused: str | None = None
    best_beats_second: float | None = None
    basis: Basis | None = None


def address_of(server: RewardServer) -> str:
    """The URL without user, password and query: what browsers may know."""
    parts = urlsplit(server.url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path.rstrip("/"), "", ""))


def offers(servers: Sequence[RewardServer]) -> list[Offer]:
    """What each server offers, asked side by side."""
    if not servers:
        return []
    with ThreadPoolExecutor(min(len(servers), AT_ONCE)) as pool:
        return list(pool.map(_offer, servers))


def ask(servers: Sequence[RewardServer], choices: Sequence[tuple[str, str]], question: ScoreQuery) -> list[Column]:
    """The columns of each (address, model), in order. Raises NotFoundError for an address that is not one of ours.

    A model that takes principles is asked by each of them, others once; what a server cannot answer is a failure in
    place of each score.
    """
    by_address = {address_of(server): server for server in servers}
    for address, _ in choices:
        if address not in by_address:
            raise NotFoundError(f"no reward server {address} is known here: it may have been stopped")
    if not choices:
        return []
    with ThreadPoolExecutor(min(len(choices), AT_ONCE)) as pool:
        parts = pool.map(lambda one: _columns(by_address[one[0]], one[1], question), choices)
        return [column for part in parts for column in part]


def _offer(server: RewardServer) -> Offer:
    try:
        with _client(server, LOOK_S) as client:
            infos, uses = client.models(), {use.model: use for use in client.principles()}
    except AssayError as error:
        return Offer(address_of(server), error=_redacted(str(error), server))
    return Offer(address_of(server), tuple(Served(info, uses[info.name]) for info in infos if info.name in uses))


def _columns(server: RewardServer, model: str, question: ScoreQuery) -> list[Column]:
    address = address_of(server)
    offer = _offer(server)
    served = next((one for one in offer.models if one.info.name == model), None)
    if served is None:
        why = offer.error or f"{address} serves no model {model!r} now"
        return [Column(address, model, None, refused=why)]
    use = served.principles.use
    if use == "required" and not question.principles:
        return [Column(address, model, served.info, refused="it judges by a principle: choose one")]
    principles: Sequence[str | None] = [None] if use == "refused" or not question.principles else question.principles
    items = [
        ScoreItem(question.prompt, response, principle, label=question.label)
        for principle in principles
        for response in question.responses
    ]
    with _client(server, ASK_S, model=model) as client:
        results = [
            ScoreFailure(result.code, _redacted(result.message, server), result.model)
            if isinstance(result, ScoreFailure)
            else result
            for result in client.score(items)
        ]
    each = len(question.responses)
    return [
        _column(address, served.info, principle, rank(results[number * each : (number + 1) * each]))
        for number, principle in enumerate(principles)
    ]


def _column(address: str, info: ModelInfo, principle: str | None, ranking: Ranking) -> Column:
    scores = [ranking.results[index] for index in ranking.order]
    rewards = [score.reward for score in scores if isinstance(score, Score)]
    probability: float | None = None
    basis: Basis | None = None
    if len(rewards) > 1:
        probability, basis = PairRule.of(info).probability(rewards[0] - rewards[1])
    return Column(address, info.name, info, principle, ranking, None, probability, basis)


def _client(server: RewardServer, seconds: float, *, model: str | None = None) -> RewardClient:
    # An empty key, so that a key in this process's environment is not sent to another server.
    return RewardClient(
        server.url,
        api_key=server.key or "",
        model=model,
        deadline=seconds,
        retries=1 if model else 0,
        failures_in_place=model is not None,
    )


def _redacted(message: str, server: RewardServer) -> str:
    """An error message without the URL's credentials."""
    redacted = message.replace(server.url, address_of(server))
    secret = urlsplit(server.url).netloc.rpartition("@")[0]
    return redacted.replace(f"{secret}@", "") if secret else redacted
