"""What a `with` block closes at its end. Leaves out: what closing means."""

from abc import ABC, abstractmethod
from typing import Self


class Closable(ABC):
    """Base of what has a `close`."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
