"""Data sets that `datasets` loads: of the Hub, or a local folder."""

from collections.abc import Iterator

from assay.data.hub_datasets import dataset_rows, open_dataset
from assay_pipelines.importers.containers.container import Record, of_bounded_size


class HubDataset:
    """`hf:NAME`: a data set of the Hub or a local folder (also one that `save_to_disk` wrote), read as a stream."""

    unit = "rows"
    size: int | None = None

    def __init__(self, name: str, *, subset: str | None = None, split: str = "train") -> None:
        self.name = name
        self.description = f"data set {name} (split {split})"
        self._at = 0
        self._data = open_dataset(name, subset, split)

    def position(self) -> int:
        return self._at

    def columns(self) -> list[str] | None:
        names = self._data.column_names
        return list(names) if names else None

    def records(self) -> Iterator[Record]:
        self._at = 0
        for number, record in dataset_rows(self._data, self.name):
            self._at = number
            yield number, of_bounded_size(record), None
