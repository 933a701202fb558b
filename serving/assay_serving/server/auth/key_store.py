"""The file of API keys: names, scopes and limits. It holds no keys, only hashes.

Covers: creating keys, hashing, reading and editing the file. Leaves out: the key of a request (`api_keys`).

A key is `assay_ID_SECRET`. The id is public and names the entry; the secret is 256 random bits, which cannot be
guessed, so a fast hash is enough: a slow one (scrypt, argon2) is for passwords, and would let clients without a key
spend the server's time. The hash is salted with 16 random bytes of the file, so that one key has different hashes in
two files.
"""

import fcntl
import hashlib
import json
import math
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from assay.errors import BadInputError, NotFoundError
from assay.system.atomic_files import replacing

FORMAT = 1
FILE = "keys.json"  #: in a workspace
ENVIRONMENT = "ASSAY_KEYS_FILE"
PREFIX = "assay_"
READ, SCORE, ADMIN = "read", "score", "admin"
SCOPES = (READ, SCORE, ADMIN)  #: read: routes that describe the server, which every key may use

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RESERVED = re.compile(r"anonymous|api-key(-\d+)?")  # clients without an entry in the file
ID = re.compile(r"[0-9a-f]{8}")
_HASH = re.compile(r"[0-9a-f]{64}")
_SPAN = re.compile(r"(\d{1,6})([hdw])")
_HOURS = {"h": 1, "d": 24, "w": 168}


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One key. Rates are a minute, None = without limit; times are UTC, ISO 8601; `expires` None = never. `models`:
    names of the only models that it may use; None, which the file leaves out, = all."""

    name: str
    id: str
    hash: str
    scopes: tuple[str, ...]
    requests_per_minute: float | None
    items_per_minute: float | None
    created: str
    expires: str | None
    models: tuple[str, ...] | None = None

    @property
    def expires_at(self) -> float:
        """Seconds since 1970; infinite for a key that does not expire."""
        return datetime.fromisoformat(self.expires).timestamp() if self.expires else math.inf


@dataclass(frozen=True, slots=True)
class KeyFile:
    """The content of the file. `salt`: hexadecimal."""

    salt: str
    entries: tuple[KeyEntry, ...] = field(default_factory=tuple)

    def hash_of(self, key: str) -> str:
        """The hash that the file keeps of a key, hexadecimal."""
        return hashlib.blake2b(
            key.encode("utf-8", "surrogateescape"), digest_size=32, salt=bytes.fromhex(self.salt), person=b"assay-keys"
        ).hexdigest()


def create_key(
    path: Path,
    name: str,
    scopes: Sequence[str],
    *,
    requests_per_minute: float | None = None,
    items_per_minute: float | None = None,
    expires: str | None = None,
    models: Sequence[str] | None = None,
) -> tuple[str, KeyEntry]:
    """Create a key; its entry is in the file (created if needed) when this returns.

    `expires`: a span (`12h`, `90d`, `4w`) or an ISO date or time. `models`: served or not.

    Raises BadInputError for a name that is taken and for anything else that makes no sense.
    """
    if not _NAME.fullmatch(name) or _RESERVED.fullmatch(name):
        raise BadInputError("a name is 1 to 64 letters, digits, '.', '_' or '-', and not anonymous or api-key")
    scopes = tuple(scope for scope in SCOPES if scope in _check_scopes(scopes))
    allowed = None if models is None else tuple(dict.fromkeys(models))
    _check_models(allowed)
    for label, rate in (("requests", requests_per_minute), ("items", items_per_minute)):
        _check_rate(rate, label)
    now = datetime.now(UTC)
    until = _iso(_expiry(expires, now)) if expires is not None else None
    with _edited(path) as edited:
        keys = edited[0]
        if any(entry.name == name for entry in keys.entries):
            raise BadInputError(f"there is a key named {name}; revoke it first, or choose another name", file=path)
        ids = {entry.id for entry in keys.entries}
        id_ = next(new for new in iter(lambda: secrets.token_hex(4), "") if new not in ids)
        key = f"{PREFIX}{id_}_{secrets.token_urlsafe(32)}"
        entry = KeyEntry(
            name,
            id_,
            keys.hash_of(key),
            scopes,
            requests_per_minute,
            items_per_minute,
            _iso(now),
            until,
            allowed,
        )
        edited[0] = replace(keys, entries=(*keys.entries, entry))
    return key, entry


def revoke_key(path: Path, name: str) -> KeyEntry:
    """Remove the key of that name (or id) from the file. Raises NotFoundError where there is none."""
    if not path.is_file():
        raise NotFoundError(f"no keys file at {path}")
    with _edited(path) as edited:
        keys = edited[0]
        revoked = [entry for entry in keys.entries if name in (entry.name, entry.id)]
        if not revoked:
            raise NotFoundError(f"no key named {name} in {path}")
        edited[0] = replace(keys, entries=tuple(entry for entry in keys.entries if entry is not revoked[0]))
    return revoked[0]


def read_keys(path: Path) -> KeyFile:
    """Raises NotFoundError where there is no file, BadInputError for a broken one or one that every user may write."""
    try:
        with path.open("rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            payload = json.loads(stream.read().decode("utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"no keys file at {path}; make one with: assay keys create NAME") from None
    except OSError as error:
        raise BadInputError(f"cannot be read: {error.strerror or error}", file=path) from error
    except (ValueError, RecursionError) as error:
        raise BadInputError(f"not JSON: {type(error).__name__}", file=path) from error
    if mode & 0o002:
        raise BadInputError("every user of this machine may write it: chmod 600", file=path)
    try:
        if payload["format"] != FORMAT:
            raise BadInputError(f"format {payload['format']!r}; this Assay reads {FORMAT}", file=path)
        salt = str(payload["salt"])
        if len(bytes.fromhex(salt)) != hashlib.blake2b.SALT_SIZE:
            raise ValueError("salt")
        listed = list(payload["keys"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInputError("not a keys file: it needs format, salt and keys", file=path) from error
    entries = tuple(_entry(fields, row, path) for row, fields in enumerate(listed, start=1))
    for what in ("name", "id"):
        seen = [getattr(entry, what) for entry in entries]
        if len(set(seen)) < len(seen):
            raise BadInputError(f"two keys have the same {what}", file=path)
    return KeyFile(salt, entries)


def _entry(fields: Any, row: int, path: Path) -> KeyEntry:
    try:
        models = fields.get("models")
        lists = {"scopes": tuple(fields["scopes"]), "models": None if models is None else tuple(models)}
        entry = KeyEntry(**{**fields, **lists})
        if not (_NAME.fullmatch(entry.name) and ID.fullmatch(entry.id) and _HASH.fullmatch(entry.hash)):
            raise ValueError("name, id or hash")
        if entry.expires is not None and datetime.fromisoformat(entry.expires).tzinfo is None:
            raise ValueError("expires without a time zone")
        _check_scopes(entry.scopes)
        if isinstance(models, str):
            raise ValueError("models")
        _check_models(entry.models)
        _check_rate(entry.requests_per_minute, "requests")
        _check_rate(entry.items_per_minute, "items")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadInputError("not the entry of a key", file=path, row=row) from error
    except BadInputError as error:
        raise BadInputError(str(error), file=path, row=row) from error
    return entry


@contextmanager
def _edited(path: Path) -> Iterator[list[KeyFile]]:
    """The file's keys in a list of one, which is written at the end. One editor at a time."""
    path = path.resolve()  # of a link, its target is replaced
    if not path.parent.is_dir():
        raise BadInputError("no such folder", file=path.parent)
    # A separate lock file: the keys file itself is replaced by each edit.
    handle = os.open(path.with_name(f".{path.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        status = path.stat() if path.exists() else None
        edited = [read_keys(path) if status else KeyFile(secrets.token_hex(hashlib.blake2b.SALT_SIZE))]
        yield edited
        with replacing(path) as temporary:
            target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(target, "w", encoding="utf-8") as stream:
                payload = {"format": FORMAT, "salt": edited[0].salt, "keys": list(map(_fields, edited[0].entries))}
                stream.write(json.dumps(payload, indent=1) + "\n")
                if status:  # keep it readable for a server of the same group
                    with suppress(PermissionError):
                        os.fchown(stream.fileno(), status.st_uid, status.st_gid)
                    os.fchmod(stream.fileno(), status.st_mode & 0o640 | 0o600)
    finally:
        os.close(handle)


def _fields(entry: KeyEntry) -> dict[str, Any]:
    """The entry in the file. Without a limit to models it is what versions before that limit read."""
    fields = asdict(entry)
    if entry.models is None:
        del fields["models"]
    return fields


def _check_models(models: Sequence[str] | None) -> None:
    if models is None:
        return
    if not models or any(not isinstance(name, str) or not name.strip() or not name.isprintable() for name in models):
        raise BadInputError("one or more names of served models", field="models")


def _check_scopes(scopes: Sequence[str]) -> Sequence[str]:
    unknown = sorted(set(scopes) - set(SCOPES))
    if unknown or not scopes:
        raise BadInputError(f"one or more of {', '.join(SCOPES)}", field="scope")
    return scopes


def _check_rate(rate: float | None, what: str) -> None:
    if rate is None:
        return
    if not isinstance(rate, int | float) or isinstance(rate, bool) or not (math.isfinite(rate) and rate > 0):
        raise BadInputError("must be a number above 0", field=f"{what}_per_minute")


def _expiry(text: str, now: datetime) -> datetime:
    try:
        if span := _SPAN.fullmatch(text):
            until = now + timedelta(hours=int(span[1]) * _HOURS[span[2]])
        else:
            until = datetime.fromisoformat(text)
            until = until.astimezone(UTC) if until.tzinfo else until.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        raise BadInputError("12h, 90d, 4w, or a date as 2030-01-31", field="expires") from None
    if until <= now:
        raise BadInputError("is past", field="expires")
    return until


def _iso(time: datetime) -> str:
    return time.isoformat(timespec="seconds")
