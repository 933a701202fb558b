"""Limits on the cost of model calls, and the cost so far, with reservations for calls in flight."""

import math
import threading
from dataclasses import dataclass, field
from typing import Annotated

from assay.errors import BadInputError
from assay.settings import Help


@dataclass(frozen=True, slots=True)
class Budget:
    """None = no limit. `calls`: attempts at the endpoint, failed ones too. `tokens`: in and out. `cost`: in the
    currency of the configured prices. `questions`: asked of the judge; those with a stored answer are free."""

    calls: Annotated[int | None, Help("Stop after so many calls.", "--max-calls")] = None
    tokens: Annotated[int | None, Help("Stop before more tokens are used.", "--max-total-tokens")] = None
    cost: Annotated[float | None, Help("Stop before it costs more.", "--max-cost")] = None
    questions: int | None = None

    def __post_init__(self) -> None:
        for name in ("calls", "tokens", "cost", "questions"):
            value = getattr(self, name)
            if value is not None and not (value >= 0 and math.isfinite(value)):
                raise BadInputError(f"must be 0 or more, not {value}", field=f"budget.{name}")


@dataclass(slots=True)
class Reservation:
    """What one attempt may cost at most, until it is settled."""

    tokens: int
    cost: float


@dataclass(slots=True)
class Spending:
    """What was spent against a budget. Threads and judges may share it, and passes where the caller keeps it."""

    budget: Budget = field(default_factory=Budget)
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost: float = 0.0
    questions: int = 0
    _open: list[Reservation] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def reserve(self, tokens: int, cost: float) -> Reservation | str | None:
        """A reservation for an attempt of at most `tokens` and `cost`; None when it fits only once attempts in flight
        turn out cheaper (wait and call again); the limit that is reached, as text, when nothing is in flight."""
        with self._lock:
            limits: tuple[tuple[str, float | None, float, float, float], ...] = (
                ("calls", self.budget.calls, self.calls, 0, 1),
                (
                    "tokens",
                    self.budget.tokens,
                    self.tokens_in + self.tokens_out,
                    sum(r.tokens for r in self._open),
                    tokens,
                ),
                ("cost", self.budget.cost, self.cost, sum(r.cost for r in self._open), cost),
            )
            for name, limit, spent, held, required in limits:
                if limit is None or spent + held + required <= limit:
                    continue
                if held and spent + required <= limit:
                    return None
                reserved = f" and {held:g} reserved" if held else ""
                return f"budget of {limit:g} {name}: {spent:g} spent{reserved}, the next call may need {required:g}"
            reservation = Reservation(tokens, cost)
            self.calls += 1
            self._open.append(reservation)
            return reservation

    def settle(self, reservation: Reservation, *, tokens_in: int, tokens_out: int, cost: float) -> None:
        """Replace a reservation by what the attempt really cost (0 where it failed without a reply)."""
        with self._lock:
            self._open = [r for r in self._open if r is not reservation]
            self.tokens_in += tokens_in
            self.tokens_out += tokens_out
            self.cost += cost

    def take_questions(self, requested: int) -> int:
        """How many of the `requested` questions may be asked; they count as asked."""
        with self._lock:
            remaining = requested if self.budget.questions is None else max(0, self.budget.questions - self.questions)
            granted = min(requested, remaining)
            self.questions += granted
            return granted


def spending_of(budget: Budget | Spending | None) -> Spending:
    """A `Spending` as it is, else a new one."""
    return budget if isinstance(budget, Spending) else Spending(budget or Budget())
