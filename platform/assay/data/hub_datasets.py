"""Data sets that `datasets` loads, read as a stream: of the Hub, or a local folder (of data files, or one that
`save_to_disk` wrote). Leaves out: what a row means.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import BackendError, NotFoundError


def open_dataset(name: str, subset: str | None, split: str) -> Any:
    """The data set, iterable. Raises NotFoundError for a split that it lacks, BackendError if it cannot be loaded."""
    import datasets

    folder = Path(name).expanduser()
    try:
        if folder.is_dir() and ((folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()):
            loaded = datasets.load_from_disk(str(folder))
            if not isinstance(loaded, datasets.DatasetDict):
                return loaded
            if split not in loaded:
                raise NotFoundError(f"hf:{name} has no split {split!r}; it has {', '.join(loaded)}")
            return loaded[split]
        return datasets.load_dataset(name, subset, split=split, streaming=True)
    except NotFoundError:
        raise
    except Exception as error:  # `datasets` raises errors of many libraries here
        raise BackendError(
            f"cannot load hf:{name}: {_line(error)} (it needs the network, or a local folder)"
        ) from error


def dataset_rows(data: Any, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(number, row) of an open data set, from 1. Raises BackendError where it breaks off."""
    rows, number = iter(data), 0
    while True:
        try:
            record = next(rows)
        except StopIteration:
            return
        except Exception as error:  # `datasets` raises errors of many libraries here
            raise BackendError(f"hf:{name} broke off after row {number}: {_line(error)}") from error
        number += 1
        yield number, record


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
