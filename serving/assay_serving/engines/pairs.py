"""Published models that read two responses at once (`assay.models.adapters.pairs`): PairRM, SteamSHP.

Covers: their texts as the publishers write them, a pass over them, the log-odds of the first response; SteamSHP's
rating of one response. Leaves out: both orders, votes, judging with them (`assay_serving.generative.pair_ranker`).

A pair is a conversation whose last two turns have the roles `response_1` and `response_2`.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

from assay.conversation.message import images_of
from assay.domain import Message, Prompt, response_text
from assay.models.adapters.heads import LogitsHead
from assay.models.adapters.pairs import MARKS
from assay.models.chat.renderer import Encoded
from assay.runs.progress_bar import Advance, silent
from assay.score import ScoreFailure
from assay_serving.engines.adapted import AdaptedScorer, EncoderScorer
from assay_serving.engines.token import Reading
from assay_serving.scorer import ScoreItem

if TYPE_CHECKING:
    import torch

#: Tokens that PairRM keeps for each of two responses: a longer prompt is too long.
_CANDIDATE = 412
_QUESTION = "Which response is better? RESPONSE"
_INSTRUCTION = "Finish the following coversation in each i-th turn by filling in <Response i> with your response."


class PairScorer(EncoderScorer):
    """Reads pairs. Safe to call from several threads: they take turns."""

    def log_odds(
        self, pairs: Sequence[Prompt], on_progress: Advance = silent
    ) -> list[tuple[float, int] | ScoreFailure]:
        """Of each pair: log P(first) - log P(second), and the tokens that were read."""
        with self._lock:
            readings = [self.read_pair(pair) for pair in pairs]
            outputs = self.outputs(readings, on_progress)
        lengths = [0 if isinstance(reading, ScoreFailure) else len(reading.conversation) for reading in readings]
        return [
            output if isinstance(output, ScoreFailure) else (self.odds(output), length)
            for length, output in zip(lengths, outputs, strict=True)
        ]

    def read_pair(self, pair: Prompt) -> Reading | ScoreFailure:
        """The pair's tokens, or why it cannot be compared: no prompt and no response is cut, no image left out."""
        if images_of(pair):
            return self.failure("bad_input", f"{self.info.name} reads text only: it has no place for images")
        return self._read_pair(pair)

    @abstractmethod
    def _read_pair(self, pair: Prompt) -> Reading | ScoreFailure:
        """Of a pair of texts."""

    def odds(self, outputs: "torch.Tensor") -> float:
        return float(outputs[-1, 0])

    def _plain(self, text: str) -> str:
        """Without the tokenizer's own marks, which are text in a text."""
        return str(self.renderer.plain(text))

    def _too_long(self) -> ScoreFailure:
        return self.failure("too_long", f"prompt and responses do not fit in {self.renderer.max_length} tokens")


class PairRmScorer(PairScorer):
    """PairRM: the prompt and each response behind a mark of its own, in one text; the marks' states are read."""

    def read(self, item: ScoreItem) -> Reading | ScoreFailure:
        """Of a prompt that ends with the first response: how models are checked."""
        if not item.prompt or item.prompt[-1].role != "response_1":
            return self.failure("bad_input", "this model compares two responses and scores none by itself")
        second = Message("response_2", response_text(item.response))
        return self.read_pair((*item.prompt, second))

    def _read_pair(self, pair: Prompt) -> Reading | ScoreFailure:
        source, first, second = pair_texts(pair)
        texts = [self._marked(mark, text) for mark, text in enumerate((source, first, second))]
        room = (self.renderer.max_length - len(texts[0])) // 2
        if room < _CANDIDATE or max(map(len, texts[1:])) > room:
            return self._too_long()
        ids = tuple(token for text in texts for token in text)
        marks = [self.renderer.tokenizer.convert_tokens_to_ids(mark) for mark in MARKS]
        return Reading(Encoded(ids, len(ids)), tuple(ids.index(mark) for mark in marks))

    def _marked(self, mark: int, text: str) -> list[int]:
        return list(self.renderer.tokenizer(MARKS[mark] + self._plain(text), verbose=False)["input_ids"])

    def _outputs_of(self, inputs: "dict[str, torch.Tensor]", readings: Sequence[Reading]) -> "torch.Tensor":
        import torch

        states = self.model(**inputs).last_hidden_state
        places = torch.tensor([reading.places for reading in readings], device=states.device)
        source, first, second = (states[torch.arange(len(states)), column] for column in places.T)
        rated = [self.head(torch.cat([source, response], 1)).mean(1, keepdim=True) for response in (first, second)]
        return rated[0] - rated[1]


class SteamShpScorer(PairScorer):
    """SteamSHP: a question about responses A and B. One response is A beside an empty B; its reward is P(A)."""

    def encode(self, item: ScoreItem) -> Encoded | ScoreFailure:
        spoken = self.spoken(item)
        if isinstance(spoken, ScoreFailure):
            return spoken
        checked = AdaptedScorer.encode(self, spoken)
        if isinstance(checked, ScoreFailure) and checked.code != "too_long":
            return checked
        read = self._question(" ".join(m.text for m in spoken.prompt), response_text(spoken.response), ".")
        if read.truncated and item.rendered is not None and item.rendered.keep is None:
            return self._too_long()
        return self._too_long() if len(read) > self.renderer.max_length else read

    def _read_pair(self, pair: Prompt) -> Reading | ScoreFailure:
        *prompt, first, second = pair
        read = self._question(" ".join(message.text for message in prompt), first.text, second.text)
        fits = len(read) <= self.renderer.max_length and not read.truncated
        return Reading(read, (len(read) - 1,)) if fits else self._too_long()

    def reward(self, outputs: "torch.Tensor") -> float:
        return float((outputs[-1, 0] - outputs[-1, 2]).exp())

    def odds(self, outputs: "torch.Tensor") -> float:
        return float(outputs[-1, 0] - outputs[-1, 1])

    def parts(self, outputs: "torch.Tensor") -> tuple[()]:
        return ()

    def _question(self, post: str, first: str, second: str) -> Encoded:
        """Its tokens; the first words of the post are left out until they fit, and no word of a response ever is."""
        post, first, second = (" ".join(self._plain(text).splitlines()) for text in (post, first, second))
        words, cut = post.split(" "), False
        while True:
            remaining = " ".join(words)
            text = f"POST: {remaining} \n\n RESPONSE A: {first}\n\n RESPONSE B: {second}\n\n {_QUESTION}"
            ids = self.renderer.tokenizer(text, verbose=False)["input_ids"]
            if len(ids) <= self.renderer.max_length or not words:
                return Encoded(tuple(ids), len(ids), truncated=cut)
            words, cut = words[max(1, (len(ids) - self.renderer.max_length) // 4) :], True

    def _outputs_of(self, inputs: "dict[str, torch.Tensor]", readings: Sequence[Reading]) -> "torch.Tensor":
        """Logits of A and of B, and the logarithm of the sum of all exponentials [B, 3]."""
        import torch

        start = torch.full((len(readings), 1), self.model.config.decoder_start_token_id, device=self.model.device)
        logits = self.model(**inputs, decoder_input_ids=start).logits[:, -1].float()
        assert isinstance(self.form.head, LogitsHead)
        return torch.cat([logits[:, list(self.form.head.tokens)], logits.logsumexp(1, keepdim=True)], 1)


def pair_texts(pair: Prompt) -> tuple[str, str, str]:
    """The prompt and both responses as PairRM reads them: of one user's turn as they are, of several as its
    `tokenize_conv_pair` writes conversations."""
    *prompt, first, second = pair
    if sum(message.role == "user" for message in prompt) < 2:
        return "\n".join(message.text for message in prompt), first.text, second.text
    questions: list[str] = []
    earlier: list[str] = []
    number = 0
    for message in prompt:
        if message.role == "assistant":
            earlier.append(f"<Response {number}>: {message.text}")
        elif message.role == "user":
            number += 1
            questions.append(f"USER: {message.text}\nAssistant: <Response {number}>")
        else:
            questions.append(message.text)
    turns = ["\n".join([*earlier, f"<Response {number}>: {response.text}"]) for response in (first, second)]
    return _INSTRUCTION + "\n".join(questions), turns[0], turns[1]
