"""A vLLM server as an engine: `/classify` for rewards, `/v1/completions` for the next token.

Covers: choosing its model, the length limit, a check that it answers with logits, token ids in both directions.
Leaves out: retries (`connection`), chat completions (`assay_serving.generative.remote`).

Tested with the server of vLLM 0.32 on a CPU. Which weights a server has loaded cannot be verified: the model's name and
a digest of its folder, as the server reports them, are part of every score's version.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from assay.errors import BackendError, BadInputError
from assay.runs.progress_bar import Advance, silent
from assay_serving.generative.generation import Sampled, SamplingParams, stream_seed
from assay_serving.vllm.connection import Connection, RemoteSettings, number
from assay_serving.vllm.rows import Fault, Row, RunningModel, by_row, sampled
from assay_serving.vllm.versions import VllmFlags, flags_for, require_raw

LISTED = 5  #: most likely tokens requested besides the named ones, for servers that cannot list named ones
PROBES: tuple[Row, ...] = ((1, 2, 3, 4), (4, 3, 2, 1), (5, 6, 7))
TOKEN = "token_id:"


@dataclass
class VllmServerEngine:
    """One model of a server."""

    connection: Connection
    model: str
    flags: VllmFlags
    running: RunningModel

    @classmethod
    def connect(cls, settings: RemoteSettings) -> "VllmServerEngine":
        """Reads the server's version and model. Raises BackendError where it cannot be reached, is unhealthy or has an
        unknown version, BadInputError where the model has to be named."""
        connection = Connection(settings)
        try:
            version = connection.get("/version")
            if not isinstance(version, dict) or "version" not in version:
                raise BackendError(f"{settings.url} is no vLLM server: it has no /version")
            flags = flags_for(str(version["version"]))
            card = model_card(connection)
            name, root = str(card["id"]), str(card.get("root") or card["id"])
            longest = card.get("max_model_len")
            running = RunningModel("unknown", "remote", int(longest) if longest else None, identity("vllm", name, root))
        except BaseException:
            connection.close()
            raise
        return cls(connection, name, flags, running)

    def close(self) -> None:
        self.connection.close()

    def require_rewards(self, *, regression: bool) -> None:
        """Raises BackendError where the server does not classify, or answers with probabilities."""
        raw, activated = self.logits(PROBES), self._classified(PROBES, self.flags.activated(), silent)
        for answer in (*raw, *activated):
            if isinstance(answer, Fault):
                raise BackendError(
                    f"{self.connection.settings.url} does not classify ({answer.message}); start it with "
                    "--runner pooling --convert classify"
                )
        require_raw(
            [value for value in raw if not isinstance(value, Fault)],
            [value for value in activated if not isinstance(value, Fault)],
            regression=regression,
            where=self.connection.settings.url,
        )

    def logits(self, rows: Sequence[Row], on_progress: Advance = silent) -> list[float | Fault]:
        """See `Classifier.logits`."""
        return self._classified(rows, self.flags.raw(), on_progress)

    def next_logps(
        self, rows: Sequence[Row], tokens: Sequence[int], on_progress: Advance = silent
    ) -> list[dict[int, float] | Fault]:
        """See `LanguageModel.next_logps`. For a server that cannot list named tokens, one more request per missing
        token allows that token only: the sampled token is always listed."""

        def ask(part: Sequence[Row]) -> Sequence[dict[int, float] | Fault] | Fault:
            log_probs = self._listed(part, tokens)
            if isinstance(log_probs, Fault):
                return log_probs
            for token in tokens:
                missing = [index for index, row in enumerate(log_probs) if token not in row]
                if not missing:
                    continue
                more = self._listed([part[index] for index in missing], (token,))
                if isinstance(more, Fault):
                    return more
                for index, row in zip(missing, more, strict=True):
                    log_probs[index] |= row
            answers: list[dict[int, float] | Fault] = []
            for row in log_probs:
                if all(token in row for token in tokens):
                    answers.append({token: row[token] for token in tokens})
                else:
                    answers.append(Fault("backend", "the server lists no log-prob of the answer's tokens"))
            return answers

        return self.connection.for_each_row(rows, ask, on_progress)

    def generate(
        self, rows: Sequence[Row], sampling: SamplingParams, *, samples: int, ends: Sequence[int], seed: int
    ) -> list[list[Sampled] | Fault]:
        """See `LanguageModel.generate`: one request per row and sample, each with its own seed."""

        def ask(part: Sequence[tuple[Row, int]]) -> Sequence[Sampled | Fault] | Fault:
            ((row, sample),) = part
            body: dict[str, Any] = {
                "model": self.model,
                "prompt": [list(row)],
                "max_tokens": sampling.max_new_tokens,
                "temperature": sampling.temperature,
                "stop_token_ids": list(ends),
                "ignore_eos": True,  # `ends` has every end token
                "add_special_tokens": False,
                "return_token_ids": True,
            }
            if sampling.temperature > 0:
                body |= {"top_p": sampling.top_p, "seed": stream_seed(row, sample, seed) % (1 << 31)}

            def read(reply: Any) -> list[Sampled | Fault] | Fault:
                ids = _in_order(reply["choices"], 1)[0].get("token_ids")
                if not isinstance(ids, list):
                    return Fault("backend", "the server gives no token ids: it is too old for generative models")
                return [sampled(ids, ends)]

            return self.connection.ask("/v1/completions", body, read, "not a completion")

        requests = [(row, sample) for row in rows for sample in range(samples)]
        return by_row(self.connection.for_each_row(requests, ask, silent, at_once=1), samples)

    def _classified(self, rows: Sequence[Row], fields: dict[str, Any], on_progress: Advance) -> list[float | Fault]:
        def ask(part: Sequence[Row]) -> Sequence[float | Fault] | Fault:
            body = {"model": self.model, "input": [list(row) for row in part], "add_special_tokens": False, **fields}

            def read(reply: Any) -> list[float | Fault] | Fault:
                logits: list[float | Fault] = []
                for entry in _in_order(reply["data"], len(part)):
                    values = entry["probs"]
                    if len(values) != 1:
                        return Fault("backend", f"{len(values)} labels where a scalar reward model has one")
                    logits.append(number(values[0]))
                return logits

            return self.connection.ask("/classify", body, read, "not a classification")

        return self.connection.for_each_row(rows, ask, on_progress)

    def _listed(self, rows: Sequence[Row], tokens: Sequence[int]) -> list[dict[int, float]] | Fault:
        """Log-probs that the server lists for the token after each row."""
        body = {
            "model": self.model,
            "prompt": [list(row) for row in rows],
            "max_tokens": 1,
            "temperature": 0.0,
            "logprobs": LISTED,
            "logprob_token_ids": list(tokens),
            "allowed_token_ids": list(tokens),
            "return_tokens_as_token_ids": True,
            "add_special_tokens": False,
        }

        def read(reply: Any) -> list[dict[int, float]]:
            log_probs: list[dict[int, float]] = []
            for choice in _in_order(reply["choices"], len(rows)):
                (listed,) = choice["logprobs"]["top_logprobs"]
                log_probs.append(
                    {int(key.removeprefix(TOKEN)): number(value) for key, value in listed.items() if TOKEN in key}
                )
            return log_probs

        return self.connection.ask("/v1/completions", body, read, "no log-probs in the reply")


def _in_order(entries: Any, count: int) -> list[dict[str, Any]]:
    """Entries of a reply by their `index`. Raises KeyError, TypeError or ValueError where they are not one a row."""
    by_index = {int(entry["index"]): dict(entry) for entry in entries}
    if set(by_index) != set(range(count)) or len(entries) != count:
        raise ValueError(f"{len(entries)} results for {count} rows")
    return [by_index[index] for index in range(count)]


def identity(server: str, name: str, source: str) -> str:
    """For a score's version: the name on the server and a digest of its source, whose path stays private."""
    return f"{server}:{name}:{hashlib.sha256(source.encode()).hexdigest()[:8]}"


def model_card(connection: Connection) -> dict[str, Any]:
    """The entry of `/v1/models` for the model. Raises BadInputError where the server has several and none is
    chosen, or where it lacks the chosen one; BackendError without a usable route."""
    settings = connection.settings
    listing = connection.get("/v1/models")
    try:
        cards = {str(card["id"]): dict(card) for card in listing["data"]}
    except (KeyError, TypeError) as error:
        raise BackendError(f"{settings.url} does not say which models it serves") from error
    if settings.model is None and len(cards) != 1:
        raise BadInputError(
            f"{settings.url} serves {', '.join(cards) or 'no model'}; name one: model=NAME", field="engine_options"
        )
    name = settings.model or next(iter(cards))
    if name not in cards:
        raise BadInputError(f"{settings.url} serves no {name!r}; it serves {', '.join(cards)}", field="model")
    return cards[name]
