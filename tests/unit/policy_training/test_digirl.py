"""DigiRL: the curriculum by the value of instructions, the filter by that of steps."""

from typing import Any

import pytest
import torch
from token_rows import batch_of

from assay.domain import Message
from assay.errors import BadInputError
from assay_policy_training.core.prompt import EPISODE, PromptItem
from assay_policy_training.plugins.estimators.digirl import DigiRl, states_of, step_advantages


def episode(*screens: str) -> dict[str, Any]:
    """A record whose policy read these screens, one before each turn."""
    shown = [[{"role": "user", "content": screen}] for screen in screens]
    return {
        "opening": shown[0],
        "turns": [{"results": [], "messages": later} for later in (*shown[1:], [])],
    }


def test_advantages_of_steps() -> None:
    # V' - V + r at the end + gamma^(turns left) r; the end has the value 0
    assert step_advantages([0.5, 0.8], 1.0, 0.5) == pytest.approx([0.8 - 0.5 + 0.5, -0.8 + 1 + 1])
    assert step_advantages([0.5, 0.8, 0.2], 0.0, 0.5) == pytest.approx([0.3, -0.6, -0.2])


def test_states_are_what_was_read_before_each_turn() -> None:
    item = PromptItem((Message("user", "Buy: pen."),), meta={EPISODE: episode("shop", "pen")})
    assert states_of(item) == ("Buy: pen.", ["shop turn0", "pen turn1"])


def rows(spec: list[tuple[str, list[str], float]], turn_tokens: int = 2) -> Any:
    """A batch of episodes: instruction, screens, reward; each turn has two tokens."""
    longest = max(len(screens) for _, screens, _ in spec) * turn_tokens
    lengths = torch.tensor([len(screens) * turn_tokens for _, screens, _ in spec])
    mask = torch.arange(longest)[None] < lengths[:, None]
    segment = (torch.arange(longest) // turn_tokens).expand(len(spec), -1) * mask
    items = tuple(PromptItem((Message("user", name),), meta={EPISODE: episode(*screens)}) for name, screens, _ in spec)
    return batch_of(mask, [reward for *_, reward in spec], items=items, segment=segment)


def test_success_at_what_mostly_fails_is_imitated_without_its_detours() -> None:
    easy, hard = ("easy", ["go"], 1.0), ("hard", ["go"], 0.0)
    detour = ("hard", ["go", "lost", "go"], 1.0)  # `lost` mostly ends badly: nothing is gained by going there
    lost = ("hard", ["go", "lost"], 0.0)
    before = [easy] * 30 + [("hard", ["go"], 1.0)] * 4 + [hard] * 6 + [lost] * 20
    estimator = DigiRl(share=0.08, gamma=0.0)
    estimator(rows(before))
    adv, returns = estimator(rows([easy, detour, hard]))
    assert returns is None
    assert adv.tolist() == [[0.0] * 6, [0, 0, 1, 1, 1, 1], [0.0] * 6]
    assert estimator.numbers() == {"episodes_kept": pytest.approx(1 / 3), "turns_kept": pytest.approx(2 / 5)}
    resumed = DigiRl(share=0.08, gamma=0.0)
    resumed.load_state_dict(estimator.state_dict())
    again = rows([easy, detour, hard])
    assert torch.equal(resumed(again)[0], estimator(again)[0])


def test_rows_without_a_reward_teach_nothing_and_rows_without_turns_are_refused() -> None:
    estimator = DigiRl()
    adv, _ = estimator(rows([("a", ["x"], float("nan")), ("a", ["x"], float("nan"))]))
    assert not adv.any()
    assert estimator.episodes == []
    with pytest.raises(BadInputError, match=r"environment\.kind"):
        estimator(batch_of(torch.ones(1, 2, dtype=torch.bool), [1.0], items=(PromptItem((Message("user", "a"),)),)))
