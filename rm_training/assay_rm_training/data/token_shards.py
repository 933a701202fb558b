"""Encoded items on the disk, read by number from memory maps: a process needs no memory for the size of the data.

    FOLDER/chosen.tokens  chosen.ends  weight.floats  tags.source.text  ...

Each field of an item is a flat array in a file of its own, fields of fields likewise; `ends` says where each item's
part of a longer array ends. Covers: the arrays of NamedTuples and dataclasses by the types of their fields, writing in
one pass, reading. Leaves out: when files may be used again (`stored_dataset.py`).
"""

import os
import shutil
import types
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar, Union, get_args, get_origin, get_type_hints, overload

import numpy as np
import numpy.typing as npt

from assay.errors import BadInputError

Item = TypeVar("Item")

_BUFFER = 1 << 16  #: bytes of one file that are held back while writing
#: Type of a number -> suffix of its file, and its form for `array` and for numpy.
_NUMBERS = {int: ("ints", "q", "<i8"), float: ("floats", "d", "<f8"), bool: ("bools", "b", "|b1")}
_ARRAYS = (np.ndarray, npt.NDArray)  #: origins of `NDArray[...]`; from numpy 2.5 on a type of its own


class StoredItems(Sequence[Item], Generic[Item]):
    """`length` items of the class `kind` in `folder`. It is sent to another process as these three."""

    def __init__(self, folder: Path, kind: type[Item], length: int) -> None:
        self.folder, self.kind, self._length = folder, kind, length

    def __reduce__(self) -> tuple[Any, ...]:
        return StoredItems, (self.folder, self.kind, self._length)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, number: int) -> Item: ...
    @overload
    def __getitem__(self, number: slice) -> list[Item]: ...
    def __getitem__(self, number: int | slice) -> Item | list[Item]:
        numbers = range(self._length)[number]
        return [self._read(each) for each in numbers] if isinstance(numbers, range) else self._read(numbers)

    @cached_property
    def _read(self) -> Callable[[int], Item]:
        return _reader(self.kind, f"{self.folder}/")


def write_items(folder: Path, items: Iterable[Item]) -> Sequence[Item]:
    """Write items of one class to `folder`, which is replaced, on the disk when this returns; no items, no folder.

    Raises BadInputError for a class with a field that has no arrays, OSError with the folder when the disk fails; what
    was written goes with any exception.
    """
    remaining = iter(items)
    for first in remaining:
        kind, length = type(first), 0
        try:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            with ExitStack() as files:
                opened: list[BinaryIO] = []
                append = _writer(kind, f"{folder}/", lambda path: _opened(path, files, opened))  # noqa: B023  # called here
                for item in chain([first], remaining):
                    append(item)
                    length += 1
                for file in opened:
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException as error:
            shutil.rmtree(folder, ignore_errors=True)
            if isinstance(error, OSError) and error.filename is None:
                error.filename = str(folder)  # a write does not say where
            raise
        return StoredItems(folder, kind, length)
    return []


def _opened(path: str, files: ExitStack, opened: list[BinaryIO]) -> BinaryIO:
    opened.append(files.enter_context(Path(path).open("xb", buffering=_BUFFER)))  # noqa: SIM115  # the stack closes it
    return opened[-1]


def _writer(hint: Any, path: str, open_file: Callable[[str], BinaryIO]) -> Callable[[Any], object]:
    """Appends a value of the type `hint` to the arrays of `path`."""
    if hint in _NUMBERS:
        suffix, code, _ = _NUMBERS[hint]
        write_number = open_file(f"{path}.{suffix}").write
        return lambda value: write_number(array(code, (value,)))
    if fields := _fields(hint):
        each = [(name, _writer(of, _below(path, name), open_file)) for name, of in fields.items()]
        return lambda value: [append(getattr(value, name)) for name, append in each]
    write_end, end = open_file(f"{path}.ends").write, 0

    def add_end(length: int) -> None:
        nonlocal end
        end += length
        write_end(array("q", (end,)))

    if hint is str or get_origin(hint) in _ARRAYS:
        write = open_file(f"{path}.{'text' if hint is str else 'tokens'}").write

        def append_whole(value: Any) -> None:
            content = value.encode("utf-8", "surrogatepass") if hint is str else np.asarray(value, "<i4").tobytes()
            write(content)
            add_end(len(content) if hint is str else len(value))

        return append_whole
    append, optional = _writer(_member(hint), f"{path}.each", open_file), get_origin(hint) is not tuple

    def append_members(value: Any) -> None:
        members = (() if value is None else (value,)) if optional else value
        for member in members:
            append(member)
        add_end(len(members))

    return append_members


def _reader(hint: Any, path: str) -> Callable[[int], Any]:
    """Reads the value of the type `hint` with a number from the arrays of `path`."""
    if hint in _NUMBERS:
        suffix, _, form = _NUMBERS[hint]
        return _mapped(f"{path}.{suffix}", form).item
    if fields := _fields(hint):
        each = [_reader(of, _below(path, name)) for name, of in fields.items()]
        return lambda n: hint(*[read(n) for read in each])
    end = _mapped(f"{path}.ends", "<i8").item

    def part(n: int) -> slice:
        return slice(end(n - 1) if n else 0, end(n))

    if hint is str:
        text = _mapped(f"{path}.text", "|u1")
        return lambda n: text[part(n)].tobytes().decode("utf-8", "surrogatepass")
    if get_origin(hint) in _ARRAYS:
        tokens = _mapped(f"{path}.tokens", "<i4")
        return lambda n: tokens[part(n)]
    member, optional = _reader(_member(hint), f"{path}.each"), get_origin(hint) is not tuple

    def read_members(n: int) -> Any:
        span = part(n)
        members = tuple(map(member, range(span.start, span.stop)))
        return (members[0] if members else None) if optional else members

    return read_members


def _mapped(path: str, form: str) -> npt.NDArray[Any]:
    """Private pages: torch warns of arrays that cannot be written."""
    return np.asarray(np.memmap(path, form, mode="c")) if os.path.getsize(path) else np.empty(0, form)


def _below(path: str, name: str) -> str:
    return f"{path}{name}" if path.endswith("/") else f"{path}.{name}"


def _fields(hint: Any) -> dict[str, Any]:
    """Name -> type of the fields of a NamedTuple or dataclass, in their order; none for any other type."""
    names: Iterable[str] = getattr(hint, "_fields", ()) or getattr(hint, "__dataclass_fields__", ())
    hints = get_type_hints(hint) if names else {}
    return {name: hints[name] for name in names}


def _member(hint: Any) -> Any:
    """The type of a tuple's members, or of a value that may be None. Raises BadInputError for any other type."""
    members = set(get_args(hint)) - {Ellipsis, types.NoneType}
    if get_origin(hint) not in (tuple, Union, types.UnionType) or len(members) != 1:
        raise BadInputError(
            f"{hint} has no place in token shards: int, float, bool, str, arrays of token ids, NamedTuples, "
            "dataclasses, tuples of one of these, or None in the place of one",
            field="encode",
        )
    return members.pop()
