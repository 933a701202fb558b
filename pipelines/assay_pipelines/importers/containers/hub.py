"""Data sets that `datasets` loads: of the Hub, or a local folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assay.errors import BackendError, NotFoundError
from assay_pipelines.importers.containers.container import Record, of_bounded_size


class HubDataset:
    """`hf:NAME`: a data set of the Hub or a local folder (also one that `save_to_disk` wrote), read as a stream."""

    unit = "rows"
    size: int | None = None

    def __init__(self, name: str, *, subset: str | None = None, split: str = "train") -> None:
        self.name, self._subset, self._split = name, subset, split
        self.description = f"data set {name} (split {split})"
        self._at = 0
        self._data = self._load()

    def position(self) -> int:
        return self._at

    def columns(self) -> list[str] | None:
        names = self._data.column_names
        return list(names) if names else None

    def records(self) -> Iterator[Record]:
        self._at = 0
        rows = iter(self._data)
        while True:
            try:
                record = next(rows)
            except StopIteration:
                return
            except Exception as error:  # `datasets` raises errors of many libraries here
                raise BackendError(f"hf:{self.name} broke off after row {self._at}: {_line(error)}") from error
            self._at += 1
            yield self._at, of_bounded_size(record), None

    def _load(self) -> Any:
        import datasets

        folder = Path(self.name).expanduser()
        try:
            if folder.is_dir() and ((folder / "state.json").is_file() or (folder / "dataset_dict.json").is_file()):
                loaded = datasets.load_from_disk(str(folder))
                if not isinstance(loaded, datasets.DatasetDict):
                    return loaded
                if self._split not in loaded:
                    raise NotFoundError(f"hf:{self.name} has no split {self._split!r}; it has {', '.join(loaded)}")
                return loaded[self._split]
            return datasets.load_dataset(self.name, self._subset, split=self._split, streaming=True)
        except NotFoundError:
            raise
        except Exception as error:  # `datasets` raises errors of many libraries here
            raise BackendError(
                f"cannot load hf:{self.name}: {_line(error)} (it needs the network, or a local folder)"
            ) from error


def _line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:300]
