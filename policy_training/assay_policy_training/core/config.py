"""Two sections of a recipe: the optimiser with its passes over a batch, and how far rollouts run ahead of training.

Leaves out: schedules beyond a linear warm-up (`plugins.schedules`), the critic's optimiser (`plugins.critics`),
sampling settings (`sampling`), generating ahead (`rollouts.pool`).
"""

from typing import TYPE_CHECKING, Annotated

from annotated_types import Ge, Gt

from assay.compute.executor import LOCAL, check_place
from assay.errors import BadInputError
from assay.models.devices import has_fast_bfloat16, require_bfloat16
from assay.models.memory_options import OptimizerName, check_offload
from assay_policy_training.core.settings import RecipeSettings

if TYPE_CHECKING:
    import torch


class Optimisation(RecipeSettings, section="optimisation"):
    """The optimiser and how a batch of rollouts is worked through."""

    optimizer: OptimizerName = "adamw"  #: with moments in 8 bit, or on the host with float32 weights: less of a GPU
    lr: Annotated[float, Ge(0)] = 1e-6
    warmup_steps: Annotated[int, Ge(0)] = 0  #: steps over which lr rises linearly from 0
    weight_decay: Annotated[float, Ge(0)] = 0.0
    betas: tuple[float, ...] = (0.9, 0.999)
    max_grad_norm: Annotated[float, Gt(0)] = 1.0
    epochs: Annotated[int, Ge(1)] = 1  #: passes over each batch of rollouts
    minibatches: Annotated[int, Ge(1)] = 1  #: optimiser steps per pass
    micro_batch_tokens: Annotated[int, Ge(0)] = 0  #: positions per pass; bounds memory, changes no gradient
    micro_batch_rows: Annotated[int, Ge(0)] = 0  #: rows per pass; neither set: 1024 tokens on a CPU, else 16384
    autocast: bool | None = None  #: bfloat16 products around float32 weights; null: on a GPU that has them
    gradient_checkpointing: bool = False  #: keep each layer's input only, compute the rest again: less memory, slower
    offload_activations: bool = False  #: what checkpointing keeps waits in the host's memory

    def __post_init__(self) -> None:
        super().__post_init__()
        check_offload(self.offload_activations, self.gradient_checkpointing, "optimisation.offload_activations")
        if len(self.betas) != 2:
            raise BadInputError("two numbers", field="optimisation.betas")

    def autocasts(self, device: "torch.device") -> bool:
        """Whether products are bfloat16 there. Raises BadInputError where they are asked of a GPU without."""
        if self.autocast is None:
            return device.type == "cuda" and has_fast_bfloat16(device)
        if self.autocast:
            require_bfloat16(device, "optimisation.autocast")
        return self.autocast

    @property
    def updates_per_batch(self) -> int:
        return self.epochs * self.minibatches

    def learning_rate(self, step: int) -> float:
        """In `step` (1-based), before schedules."""
        return self.lr * min(1.0, step / self.warmup_steps) if self.warmup_steps else self.lr


class Asynchrony(RecipeSettings, section="asynchrony"):
    """How old the weights of rollouts may be, and who generates. All 0: the trainer, with its own weights.

    `lag`: a step trains on rollouts of the weights of exactly `lag` steps earlier (the first steps: of the first), so
    that a run is reproducible. `staleness`: of at most so many steps earlier; each unit of work begins with the newest
    weights there are. `actors`: processes that generate, on this machine or in a Ray cluster; 0 = a thread of the
    trainer. `groups`: prompts that an actor generates for at once. `window`: tokens after which an actor hands rows
    under way back, so that another may continue them; 0 = whole responses. `partial`: they continue under the newest
    weights. `devices`: of the actors in turn; default: the trainer's. `run_on`: where they are, unless `--on` is given.
    `chunks`: without actors, rewards are requested in this many portions a step while the sampler continues; it
    changes no number.
    """

    lag: Annotated[int, Ge(0)] = 0
    staleness: Annotated[int, Ge(0)] = 0
    actors: Annotated[int, Ge(0)] = 0
    groups: Annotated[int, Ge(1)] = 1
    window: Annotated[int, Ge(0)] = 0
    partial: bool = False
    devices: tuple[str, ...] = ()
    run_on: str = LOCAL
    chunks: Annotated[int, Ge(1)] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_place(self.run_on, "asynchrony.run_on", processes=False)
        for_actors = {"groups": self.groups > 1, "window": self.window > 0, "devices": bool(self.devices)}
        problems = {name: "is for actors: give asynchrony.actors" for name, on in for_actors.items() if on}
        problems = {} if self.actors else problems
        if self.lag and self.staleness:
            problems["lag"] = "give lag (exact) or staleness (at most), not both"
        if self.partial and not (self.window and self.staleness):
            problems["partial"] = "rows continue under newer weights at the end of a window: give window and staleness"
        for name, problem in problems.items():
            raise BadInputError(problem, field=f"asynchrony.{name}")

    @property
    def ahead(self) -> int:
        """Steps for which rollouts may be generated ahead of training."""
        return max(self.lag, self.staleness)

    def check_process(self, on: str, world: int) -> None:
        """Raises BadInputError where rollouts cannot be generated so. `on`: where actors are; `world`: processes."""
        if on != LOCAL and not self.actors:
            raise BadInputError("there are no actors to place: asynchrony.actors", field="--on")
        if self.ahead and not self.actors and world > 1:
            raise BadInputError(
                f"a thread cannot generate for {world} processes: give asynchrony.actors", field=self.key
            )

    @property
    def key(self) -> str:
        """The setting that is to blame where rollouts cannot be generated beside training."""
        return "asynchrony." + ("staleness" if self.staleness else "lag" if self.lag else "actors")
