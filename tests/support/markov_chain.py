"""A language model that is a known Markov chain over the letters a to d, and what its states are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from assay.models.tiny import make_tiny

STATES = "abcd"
#: Rows: before the response, after a, b, c, d; columns: a, b, c, d, the end.
CHAIN = np.array(
    [
        [0.3, 0.4, 0.2, 0.1, 0.0],
        [0.2, 0.3, 0.1, 0.1, 0.3],
        [0.1, 0.2, 0.4, 0.2, 0.1],
        [0.5, 0.0, 0.1, 0.2, 0.2],
        [0.0, 0.0, 0.0, 0.5, 0.5],
    ]
)


def chain_model(folder: Path, chain: npt.NDArray[np.float64] = CHAIN) -> Path:
    """A Llama whose layers add nothing: its next token depends on the last one alone, as the chain says."""
    from transformers import AutoTokenizer, LlamaForCausalLM

    make_tiny(folder, hidden=32, layers=1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model: Any = LlamaForCausalLM.from_pretrained(folder, tie_word_embeddings=False)
    tokens = [*(tokenizer.convert_tokens_to_ids(state) for state in STATES), tokenizer.eos_token_id]
    with torch.no_grad():
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        model.model.norm.weight.fill_(1.0)
        embeddings = model.get_input_embeddings().weight
        embeddings.zero_()
        embeddings[:, 0] = 1.0  # every other token: the start
        head = model.lm_head.weight
        head.fill_(0.0)
        head[:, :5] = -30.0
        for state in range(5):
            if state:
                embeddings[tokens[state - 1]] = torch.eye(32)[state]
            for column, token in enumerate(tokens):
                # The norm makes a unit vector sqrt(32) long.
                head[token, state] = float(np.log(max(chain[state, column], 1e-12))) / 32**0.5
    model.save_pretrained(folder)
    return folder


def truth(chain: npt.NDArray[np.float64] = CHAIN) -> npt.NDArray[np.float64]:
    """P(the last letter is a) before the response and after each letter: V = end from a, or on through the chain."""
    among, ends = chain[:, :4], chain[:, 4] * np.array([0, 1, 0, 0, 0])
    onward = np.hstack([np.zeros((5, 1)), among])
    values: npt.NDArray[np.float64] = np.linalg.solve(np.eye(5) - onward, ends)
    return values
