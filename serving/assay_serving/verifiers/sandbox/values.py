"""Python values as JSON between a program under test and its tests: data by value, everything else by reference.

Covers: exact built-in types, their subclasses as the type that they extend, common types of the standard library, NumPy
arrays; lists, dicts and sets with identity, so that changes made in place are sent back. Data that arrives is made
anew by this module: no method of the sender's classes, such as an `__eq__`, arrives with it. Leaves out: what a
reference can do (`peer`). Standard library only.
"""

import base64
import collections
import importlib
import keyword
import sys
from collections.abc import Callable, Iterable
from typing import Any

#: Types that are data, by module and name. Their modules are imported where such a value is met: each run starts anew.
_DATES = ("date", "time", "datetime")
_TYPES: dict[tuple[str, str], Callable[[Any], Any]] = {("decimal", "Decimal"): str, ("fractions", "Fraction"): str}
_TYPES |= {("datetime", name): lambda value: value.isoformat() for name in _DATES}
_TYPES[("datetime", "timedelta")] = lambda value: [value.days, value.seconds, value.microseconds]
_EXACT = {"Counter": collections.Counter, "OrderedDict": collections.OrderedDict, "deque": collections.deque}
_SIMPLE = (type(None), bool, str)
DEEPEST = 200  #: levels of nested data


class Values:
    """Encodes and decodes the values of one call.

    `refer(value)` names an object that is not data, as a JSON object; `resolve(object)` is the inverse. Lists, dicts,
    sets and bytearrays are numbered in the order in which they are first seen, on both sides alike: `containers`.
    """

    def __init__(self, refer: Callable[[Any], dict[str, Any]], resolve: Callable[[dict[str, Any]], Any]) -> None:
        self.refer, self.resolve = refer, resolve
        self.containers: list[Any] = []
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, depth: int = 0) -> Any:
        """As JSON. Raises ValueError for data nested too deep."""
        kind = type(value)
        if kind in _SIMPLE:
            return value
        if kind is int:
            return value if -(1 << 63) < value < 1 << 63 else {"int": hex(value)}
        if depth > DEEPEST:
            raise ValueError(f"nested more than {DEEPEST} levels deep")
        mro = kind.__mro__
        if float in mro:
            return {"float": float.hex(value)}
        if int in mro:
            return self.encode(int.__int__(value))
        if str in mro:
            return str.__str__(value)
        if complex in mro:
            return {"complex": [float.hex(complex.__complex__(value).real), float.hex(complex.__complex__(value).imag)]}
        if bytes in mro:
            return {"bytes": base64.b64encode(bytes(memoryview(value))).decode()}
        if kind in (range, slice):
            return {kind.__name__: [self.encode(n, depth + 1) for n in (value.start, value.stop, value.step)]}
        if tuple in mro:
            items = [self.encode(item, depth + 1) for item in tuple.__iter__(value)]
            names = getattr(kind, "_fields", None)
            return {"named": [kind.__name__, list(map(str, names)), items]} if names else {"tuple": items}
        if frozenset in mro:
            return {"frozenset": [self.encode(item, depth + 1) for item in frozenset.__iter__(value)]}
        if any(base in mro for base in (list, dict, set, bytearray, collections.deque)):
            return self._container(value, mro, depth)
        return self._other(value, kind)

    def _container(self, value: Any, mro: tuple[type, ...], depth: int) -> dict[str, Any]:
        if id(value) in self._numbers:
            return {"same": self._numbers[id(value)]}
        number = self.number(value)
        return {"n": number, **self.content(value, mro, depth)}

    def number(self, container: Any) -> int:
        """Its place in `containers`, where it is put if it is new."""
        if id(container) not in self._numbers:
            self._numbers[id(container)] = len(self.containers)
            self.containers.append(container)
        return self._numbers[id(container)]

    def content(self, value: Any, mro: tuple[type, ...] = (), depth: int = 0) -> dict[str, Any]:
        """What is in a container, as JSON."""
        mro = mro or type(value).__mro__
        if bytearray in mro:
            return {"bytearray": base64.b64encode(bytes(memoryview(value))).decode()}
        if dict in mro:
            pairs = [[self.encode(k, depth + 1), self.encode(v, depth + 1)] for k, v in dict.items(value)]
            exact = next((name for name, base in _EXACT.items() if base in mro), "")
            return {"dict": pairs, **({"as": exact} if exact else {})}
        for name, base in (("list", list), ("set", set), ("deque", collections.deque)):
            if base in mro:
                return {name: [self.encode(item, depth + 1) for item in base.__iter__(value)]}
        raise TypeError(mro[0].__name__)

    def _other(self, value: Any, kind: type) -> Any:
        named = (kind.__module__, kind.__name__)
        if named in _TYPES and kind is getattr(sys.modules.get(named[0]), named[1], None):
            return {kind.__name__.lower(): _TYPES[named](value)}
        numpy = sys.modules.get("numpy")
        if numpy is not None and kind.__module__ == "numpy" and isinstance(value, numpy.ndarray | numpy.generic):
            array = numpy.ascontiguousarray(value)
            if array.dtype.kind in "biufcSU":
                payload = base64.b64encode(array.tobytes()).decode()
                return {"numpy": [array.dtype.str, list(numpy.shape(value)), payload, kind is numpy.ndarray]}
        return self.refer(value)

    def decode(self, sent: Any) -> Any:
        """The value of JSON that `encode` made on the other side. Raises ValueError for anything else."""
        if not isinstance(sent, dict):
            if isinstance(sent, list | float):
                raise ValueError("not a value")
            return sent
        if "same" in sent:
            return self.containers[sent["same"]]
        if "n" in sent:
            return self._decode_container(sent)
        (name, body), *more = sent.items()
        if more:
            return self.resolve(sent)
        if name in ("tuple", "frozenset"):
            items = [self.decode(item) for item in body]
            return tuple(items) if name == "tuple" else frozenset(items)
        if name == "named":
            return self._decode_named(*body)
        if name in ("range", "slice"):
            return {"range": range, "slice": slice}[name](*map(self.decode, body))
        if name == "numpy":
            return _numpy_array(*body)
        if name == "timedelta":
            return importlib.import_module("datetime").timedelta(*body)
        if name in _DATES:
            return getattr(importlib.import_module("datetime"), name).fromisoformat(body)
        reader = _READERS.get(name)
        return reader(body) if reader is not None else self.resolve(sent)

    def _decode_container(self, sent: dict[str, Any]) -> Any:
        kind = next(name for name in ("list", "dict", "set", "deque", "bytearray") if name in sent)
        container: Any = {"list": list, "dict": dict, "set": set, "deque": collections.deque, "bytearray": bytearray}[
            kind
        ]()
        if sent.get("as") in _EXACT:
            container = _EXACT[sent["as"]]()
        if self.number(container) != sent["n"]:
            raise ValueError("containers out of order")
        self.fill(container, sent)
        return container

    def fill(self, container: Any, sent: dict[str, Any]) -> None:
        """Give `container` the content that was sent, in place."""
        if "bytearray" in sent:
            container[:] = base64.b64decode(sent["bytearray"])
            return
        kind = next(name for name in ("list", "dict", "set", "deque") if name in sent)
        items: Iterable[Any] = [
            (self.decode(item[0]), self.decode(item[1])) if kind == "dict" else self.decode(item) for item in sent[kind]
        ]
        container.clear()
        (container.update if kind in ("dict", "set") else container.extend)(dict(items) if kind == "dict" else items)

    def _decode_named(self, name: str, fields: list[str], items: list[Any]) -> Any:
        """An instance of a named tuple of this side's own making, with the names of the other's."""
        safe = name if name.isidentifier() and not keyword.iskeyword(name) else "Tuple"
        return collections.namedtuple(safe, fields, rename=True)(*map(self.decode, items))


def _numpy_array(dtype: str, shape: list[int], payload: str, is_array: bool) -> Any:
    numpy = importlib.import_module("numpy")
    array = numpy.frombuffer(base64.b64decode(payload), dtype=numpy.dtype(str(dtype))).reshape(shape).copy()
    return array if is_array else array[()]


_READERS: dict[str, Callable[[Any], Any]] = {
    "int": lambda text: int(text, 16),
    "float": float.fromhex,
    "complex": lambda parts: complex(*map(float.fromhex, parts)),
    "bytes": base64.b64decode,
    "decimal": lambda text: importlib.import_module("decimal").Decimal(str(text)),
    "fraction": lambda text: importlib.import_module("fractions").Fraction(str(text)),
}
