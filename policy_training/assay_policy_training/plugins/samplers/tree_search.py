"""DeepSearch: a tree of turns for each prompt, grown where it promises most, in place of separate episodes.

Covers: each node is a turn with what the environment answered; a node is expanded by `width` turns of the policy.
Downwards the child of the highest Q/N + `explore` sqrt(ln N_parent / N) is expanded next. When turns have ended their
episodes, one of them is backed up, a solved one before others, and of equals the one the policy was surest of (the
least mean -log p of its tokens): of failures, the most confident negative. Then the search goes on at the best node of
the whole frontier, by 0.4 tanh(Q/N of the parent) + `uncertainty` x mean -log p + 0.01 sqrt(depth / turns). The leaves
that were backed up are the rows. `extras["node_value"]` has Q of the node that a token belongs to (`tree_values`).
Backup along a path of l nodes: Q += max((depth + 1) / l, 0.1) v, v = 1 solved, -1 not; a Q of the other sign is
replaced by a positive one, and keeps against a negative one. A leaf whose episode failed, or has no reward, comes after
the others and is a row, and nothing is backed up. Leaves out: caching solved prompts, environments that
cannot be copied.

Source: arXiv 2509.25454, code smiles724/DeepSearch read. There a node is a fixed number of tokens, here a turn. Where
the code's frontier is empty (each node full), the root is expanded again here.
"""

import math
from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from assay.errors import BadInputError
from assay_policy_training.core.batch import RolloutBatch
from assay_policy_training.core.prompt import PromptItem
from assay_policy_training.core.sampling import group_seeds
from assay_policy_training.core.settings import RecipeSettings
from assay_policy_training.core.stop_strings import StopStrings
from assay_policy_training.plugins.environments.episode import Episode
from assay_policy_training.plugins.protocols import TurnGeneration
from assay_policy_training.plugins.samplers.episode_plan import EpisodePlan
from assay_policy_training.plugins.samplers.episode_run import EpisodeRun
from assay_policy_training.plugins.samplers.episodes import EpisodeRow, EpisodeSampler, episode_seeds

_COLUMNS = ("tokens", "drawn", "logp")
NODE_VALUE = "node_value"  #: in `extras`: Q of the token's node


@dataclass(eq=False)
class TurnNode:
    """`tokens`, `drawn`, `logp`: of its turn and of what was read after it. `value`: Q, a sum over `visits`."""

    episode: Episode
    parent: "TurnNode | None" = None
    tokens: list[int] = field(default_factory=list)
    drawn: list[bool] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    children: list["TurnNode"] = field(default_factory=list)
    value: float = 0.0
    visits: int = 0
    backed: bool = False

    @property
    def path(self) -> list["TurnNode"]:
        """From the root's child to this one."""
        return [] if self.parent is None else [*self.parent.path, self]

    @property
    def ended(self) -> bool:
        return self.episode.ended is not None

    @property
    def mean(self) -> float:
        return self.value / self.visits if self.visits else 0.0

    @property
    def surprise(self) -> float:
        """Mean -log p of its own tokens."""
        own = [logp for logp, drawn in zip(self.logp, self.drawn, strict=True) if drawn]
        return -sum(own) / max(1, len(own))


def back_up(leaf: TurnNode, value: float, root: TurnNode) -> None:
    """Along the path from the leaf to the root, which counts as a node of depth 0."""
    path = [root, *leaf.path]
    for depth, node in enumerate(path):
        node.visits += 1
        weighted = max((depth + 1) / len(path), 0.1) * value
        if node.value * value >= 0:
            node.value += weighted
        elif value > 0:
            node.value = weighted


class Tree:
    """The search of one prompt. `at`: the node to expand next."""

    def __init__(self, root: TurnNode, plan: "TreeSearch", part: str, leaves: int) -> None:
        self.root, self.plan, self.part, self.leaves = root, plan, part, leaves
        self.at = root
        self.rows: list[TurnNode] = []  #: leaves that were backed up

    @property
    def done(self) -> bool:
        return self.root.ended or len(self.rows) >= self.leaves

    def value(self, leaf: TurnNode) -> float | None:
        """1 solved, -1 not; None of an episode that failed, or whose reward is missing."""
        reward = leaf.episode.rewards.get(self.part)
        if leaf.episode.failure is not None or not isinstance(reward, float):
            return None
        return 1.0 if reward > self.plan.above else -1.0

    def expanded(self) -> None:
        """Back up what has ended below the node that was expanded, and choose the next one."""
        ended = [child for child in self.at.children if child.ended and not child.backed]
        for child in self.at.children:
            if not child.ended and not child.visits:
                child.visits = 1
        if ended:
            leaf = min(ended, key=lambda child: (-(self.value(child) or -math.inf), child.surprise))
            leaf.backed = True
            if (value := self.value(leaf)) is not None:
                back_up(leaf, value, self.root)
            self.rows.append(leaf)
        below = [child for child in self.at.children if not child.ended]
        if below and not ended:
            self.at = max(below, key=lambda child: child.mean + self._bonus(child))
        else:
            self.at = max(self._frontier(), key=self._promise, default=self.root)

    def _bonus(self, child: TurnNode) -> float:
        return self.plan.explore * math.sqrt(math.log(max(1, self.at.visits)) / max(1, child.visits))

    def _promise(self, node: TurnNode) -> float:
        assert node.parent is not None
        depth = len(node.path) / node.episode.limits.turns
        return 0.4 * math.tanh(node.parent.mean) + self.plan.uncertainty * node.surprise + 0.01 * math.sqrt(depth)

    def _frontier(self) -> Iterator[TurnNode]:
        """Nodes with room for children."""
        pending = list(self.root.children)
        while pending:
            node = pending.pop(0)
            pending += node.children
            if not node.ended and len(node.children) < self.plan.width:
                yield node


class OneTurn:
    """Rows of a generation that have one turn each, after `held` tokens; `observed`: what each reads next."""

    def __init__(self, inner: TurnGeneration, held: Sequence[int]) -> None:
        self.inner, self.held = inner, held
        self.observed: dict[int, list[int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def remaining(self, row: int) -> int:
        return self.inner.remaining(row) - self.held[row]

    def resume(self, row: int, observed: Sequence[int]) -> None:
        self.observed[row] = list(observed)


class EpisodeTrees(EpisodeSampler):
    """S2 in an environment, see the module. `drawn_tokens`: that the last rollout cost, all branches together."""

    def __init__(self, *arguments: Any, plan: "TreeSearch") -> None:
        """Raises BadInputError for an environment that does not say that it can be copied."""
        super().__init__(*arguments)
        environment = self.environment
        if not environment.copies:
            raise BadInputError(
                f"{type(environment).__name__} has no `copies = True`, or `fresh` tools: a tree copies it",
                field="sampler",
            )
        if not (plan.part or environment.parts):
            raise BadInputError("which part of the reward says whether an episode succeeds?", field="sampler.part")
        self.plan, self.drawn_tokens = plan, 0

    def rollout(
        self, items: Sequence[PromptItem], group_size: int, *, seed: int | Sequence[int], version: int
    ) -> RolloutBatch:
        """`group_size` leaves of a tree for each item."""
        self._check(items)
        self.drawn_tokens = 0
        seeds = group_seeds(seed, len(items))
        roots = [Episode(item, replace(self.environment), self.limits) for item in items]
        trees = [
            Tree(TurnNode(root), self.plan, self.plan.part or self.environment.parts[0], group_size) for root in roots
        ]
        stops = self._stops()
        of_episodes = episode_seeds(items, seeds)
        begun = EpisodeRun(self.policy, roots, of_episodes, self.limits, _no_generation, stops)
        try:
            contexts = begun.begin()
        finally:
            begun.close()
        grown = [0] * len(items)  # nodes
        while growing := [number for number, tree in enumerate(trees) if not tree.done]:
            children: list[TurnNode] = []
            owners: list[int] = []
            places: list[tuple[int, int]] = []
            for number in growing:
                at = trees[number].at
                for _ in range(max(1, self.plan.width - len(at.children))):
                    children.append(TurnNode(_copied(at.episode), at))
                    owners.append(number)
                    places.append((seeds[number], grown[number]))
                    grown[number] += 1
            self._grow(children, [contexts[number] for number in owners], places, stops)
            for child in children:
                assert child.parent is not None
                child.parent.children.append(child)
            for number in growing:
                trees[number].expanded()
        return self._leaves(trees, group_size, version)

    def _grow(
        self,
        nodes: Sequence[TurnNode],
        contexts: Sequence[Sequence[int]],
        places: Sequence[tuple[int, int]],
        stops: StopStrings,
    ) -> None:
        """A turn of each node's episode, after its path."""
        before = [[token for node in child.path[:-1] for token in node.tokens] for child in nodes]
        generation: OneTurn | None = None

        def begin(rows: dict[int, list[int]]) -> Any:
            nonlocal generation
            inner = self.sampler.turns(list(rows.values()), 1, places, self.limits.turn_tokens)
            generation = OneTurn(inner, [len(tokens) for tokens in before])
            return generation

        episodes = [node.episode for node in nodes]
        run = EpisodeRun(self.policy, episodes, (), self.limits, begin, stops)
        try:
            run.generate({n: [*contexts[n], *before[n]] for n in range(len(nodes))})
        finally:
            run.close()
        assert generation is not None
        for row, node in enumerate(nodes):
            own = generation.turn(row)[: self.sampling.max_new_tokens - len(before[row])]
            observed = generation.observed.get(row, [])
            node.tokens, node.drawn = [*own, *observed], [True] * len(own) + [False] * len(observed)
            node.logp = [*generation.logp[row, : len(own)].tolist(), *([0.0] * len(observed))]
            self.drawn_tokens += len(own)

    def _leaves(self, trees: Sequence[Tree], size: int, version: int) -> RolloutBatch:
        """A tree whose environment failed at once has rows of an end token."""
        leaves = [leaf for tree in trees for leaf in (tree.rows or [tree.root] * size)]
        rows, values = list[EpisodeRow](), list[Tensor]()
        for leaf in leaves:
            nodes = leaf.path or [
                TurnNode(leaf.episode, None, [int(self.policy.tokenizer.eos_token_id)], [True], [0.0])
            ]
            tokens, drawn, logp = ([x for node in nodes for x in getattr(node, name)] for name in _COLUMNS)
            rows.append((torch.tensor(tokens), torch.tensor(drawn), torch.tensor(logp)))
            values.append(torch.tensor([node.value for node in nodes for _ in node.tokens]))
        batch = self._batch([leaf.episode for leaf in leaves], rows, [bool(leaf.parent) for leaf in leaves], version)
        return batch.with_(
            uid=tuple(f"{version}.{number // size}" for number in range(len(leaves))),
            extras={NODE_VALUE: torch.nn.utils.rnn.pad_sequence(values, batch_first=True)},
        )


class TreeSearch(EpisodePlan, RecipeSettings, section="sampler"):
    """S2. `width`: children of a node. `part`: of the episode's reward, a success above `above`; default: the
    environment's first. `explore`, `uncertainty`: see the module."""

    width: Annotated[int, Ge(1)] = 8
    part: str = ""
    above: float = 0.5
    explore: Annotated[float, Ge(0)] = 2.0
    uncertainty: float = 0.0
    plays: ClassVar[Any] = EpisodeTrees


def _copied(episode: Episode) -> Episode:
    """The episode up to here, to go on with beside others."""
    branch = copy(episode)
    branch.environment, branch.turns, branch.rewards = (
        deepcopy(episode.environment),
        list(episode.turns),
        {**episode.rewards},
    )
    return branch


def _no_generation(contexts: dict[int, list[int]]) -> TurnGeneration:
    raise NotImplementedError("roots are not generated")
