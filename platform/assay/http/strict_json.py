"""JSON bodies read strictly: what two readers could understand differently, and what is made to exhaust a reader.

Covers: NaN and Infinity, numbers past 64 bits, a name twice in one object, half a surrogate pair, anything but UTF-8,
depth, number of values. Leaves out: what a body must hold (`bodies`), its size in bytes (`gate`).

A second reader (pydantic, a dialect) reads the same bytes after this one, at a cost of microseconds; checks of its own
would have to be in every route, and the one without them would be the hole.
"""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

MAX_DEPTH = 64
#: A wrong value costs a validator some 1 to 2 kB and 8 microseconds to report: a quarter of a million, two seconds.
MAX_VALUES = 1 << 18
MAX_HOLDERS = 1 << 16  #: objects and lists at one depth; a wrong object costs the most to report
_INTEGER_DIGITS = 20  #: with a sign; 64 bits have at most 19
_LARGEST = (1 << 63) - 1
_HOLDERS = frozenset((dict, list))


class JsonError(Exception):
    """The body cannot be read, or not in one way only. The text quotes nothing of it."""


class NotJsonError(JsonError):
    """No reader makes anything of it, and the one of the route can say where it goes wrong."""


class TooManyValuesError(JsonError):
    """It could be read, but is larger inside than anything that makes sense."""


def parse(body: bytes) -> Any:
    """The body's value. Raises JsonError."""
    if len(body) > 2 * MAX_VALUES:  # a value takes two bytes at least
        _check_count(body)
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError:
        raise JsonError("the body is not UTF-8") from None
    try:
        value = _DECODER.decode(text)
    except RecursionError:
        raise JsonError(f"the body is nested deeper than {MAX_DEPTH}") from None
    except ValueError:
        if b"\0" in body:  # UTF-16, which some readers guess
            raise JsonError("the body is not UTF-8") from None
        raise NotJsonError("the body is not JSON") from None
    # Each test on the bytes is a scan at memory speed that spares most bodies the slow one.
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH:
        _check_depth(value)
    if b"\\u" in body and (b"\\ud" in body or b"\\uD" in body):
        _check_text(value)
    return value


def _check_count(body: bytes) -> None:
    """Before anything is made of it: five million empty lists are 16 MB as text and 350 MB as lists."""
    texts = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # now each quote begins or ends a text
    if texts.count(b'"') <= 4 * MAX_VALUES:  # of a name and a value each
        bare = b"".join(texts.split(b'"')[::2])
        if bare.count(b",") + bare.count(b"[") + bare.count(b"{") <= MAX_VALUES:
            return
    raise TooManyValuesError(f"the body holds more than {MAX_VALUES} values")


def _check_depth(value: Any) -> None:
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise JsonError(f"the body is nested deeper than {MAX_DEPTH}")
        inner: list[Any] = []
        for holder in level:
            members = holder.values() if type(holder) is dict else holder
            inner += [member for member in members if type(member) in _HOLDERS]
        if len(inner) > MAX_HOLDERS:
            raise TooManyValuesError(f"the body holds more than {MAX_HOLDERS} objects and lists")
        level = inner


def _check_text(value: Any) -> None:
    """Half a pair is no text: a tokenizer refuses it, a hash of it fails."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise JsonError("the body holds half a surrogate pair, which is no text") from None
    except RecursionError:
        raise JsonError(f"the body is nested deeper than {MAX_DEPTH}") from None


def _object(members: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(members)
    if len(mapping) != len(members):
        raise JsonError("an object of the body has the same name twice")
    return mapping


def _constant(_: str) -> NoReturn:
    raise JsonError("NaN and Infinity are no JSON numbers")


def _float(text: str) -> float:
    if math.isinf(value := float(text)):
        raise JsonError("a number of the body is too large")
    return value


def _integer(text: str) -> int:
    # By its length first: the time to read a number grows with the square of its digits.
    if len(text) > _INTEGER_DIGITS or not -_LARGEST - 1 <= (value := int(text)) <= _LARGEST:
        raise JsonError("an integer of the body is too large")
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_constant, parse_float=_float, parse_int=_integer)
