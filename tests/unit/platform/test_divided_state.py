"""A folder of divided tensors whose index is none."""

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.checkpoint.metadata import Metadata

from assay.errors import BadInputError
from assay.models.parallelism.sharded_state import read_whole


@pytest.mark.parametrize(
    "index",
    [{}, None, [1], Metadata({"[]": torch.Size([1])}), Metadata(None)],  # type: ignore[arg-type, dict-item]
    ids=["mapping", "nothing", "list", "no tensor", "no tensors"],
)
def test_an_index_of_something_else_is_one_line(index: Any, tmp_path: Path) -> None:
    (tmp_path / ".metadata").write_bytes(pickle.dumps(index))
    with pytest.raises(BadInputError, match="not a readable state") as error:
        read_whole({}, tmp_path)
    assert "\n" not in str(error.value)
