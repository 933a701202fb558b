"""The registry of everything that people can extend: importers, judges, losses, dialects and the other kinds.

Covers: a `Kind` with its built-in members, and finding a member by name: built in, by an entry point of an installed
package (group `assay.plugins`, named `KIND.NAME`), as `package.module:Name`, or as `file.py:Name` beside the
configuration that names it. Nothing is imported before it is used. Leaves out: what a member does, which the module
that defines its kind says.

Packages announce their kinds by entry points of the group `assay.kinds`; `all_kinds` lists them.
"""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
import weakref
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, Generic, TypeVar

from assay.errors import AssayError, BackendError, BadInputError, NotFoundError, nearest_names

T = TypeVar("T")

KIND_GROUP = "assay.kinds"
MEMBER_GROUP = "assay.plugins"
_FILE_MODULE = "assay_file_"


@dataclass(frozen=True)
class Setting:
    """One setting of a member: a parameter of its factory or a field of its dataclass, as text for people."""

    name: str
    annotation: str
    default: str | None  # None: it must be given


@dataclass(frozen=True)
class Member:
    """One named member of a kind, before it is imported. `origin`: "built in", or the package that brings it."""

    kind: str
    name: str
    target: str  # "package.module:Name"
    origin: str


@dataclass(frozen=True)
class Made:
    """How a thing was made: the kind and name it was found by, and the settings that were given."""

    kind: str
    name: str
    settings: Mapping[str, Any]


@dataclass(frozen=True)
class Kind(Generic[T]):
    """One kind of thing that people can add to.

    `members`: built-in name -> "package.module:Name". `summary`: what a member is, in one sentence. `requires`: the
    attributes that every member has; `makes`: of a factory, those of what it returns. `option`: the option or key that
    names a member, for messages.
    """

    name: str
    summary: str
    members: Mapping[str, str] = field(default_factory=dict)
    requires: tuple[str, ...] = ()
    makes: tuple[str, ...] = ()
    option: str | None = None

    def names(self) -> list[str]:
        """Every name that can be given, those of installed packages included."""
        return sorted({*self.members, *(member.name for member in _installed(self.name))})

    def entries(self) -> list[Member]:
        """Every named member, in the order of names. A built-in name cannot be taken by a package."""
        built_in = [Member(self.name, name, target, "built in") for name, target in self.members.items()]
        installed = [member for member in _installed(self.name) if member.name not in self.members]
        return sorted([*built_in, *installed], key=lambda member: member.name)

    def help(self) -> str:
        """What an option's help says about the names: the names, and how to give one's own."""
        return f"{', '.join(self.names())}; or module:Name, or file.py:Name"

    def find(self, name: str, *, folder: Path | None = None, field: str | None = None) -> T:
        """The member itself: the class, function or object of that name.

        `folder`: where a `file.py:Name` is looked for, the folder of the configuration that names it.
        Raises BadInputError that names `field` and the nearest names; BackendError where a package is missing.
        """
        field = field or self.option
        for member in self.entries():
            if member.name == name:
                return self._checked(_load(member.target, f"{self.name} {name!r}", field), name, field)
        if isinstance(name, str) and ":" in name:
            source, _, attribute = name.rpartition(":")
            if source.endswith(".py"):
                return self._checked(_from_file(Path(folder or "."), source, attribute, field), name, field)
            return self._checked(_load(name, f"{self.name} {name!r}", field), name, field)
        raise unknown(self.name, name, self.names(), field=field, more="module:Name or file.py:Name")

    def create(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        folder: Path | None = None,
        field: str | None = None,
    ) -> Any:
        """The member called with the settings; `made_by` tells later how it was made.

        Raises BadInputError for a setting that it does not have, lacks or refuses, naming `field`.
        """
        arguments = dict(settings or {})
        factory: Any = self.find(name, folder=folder, field=field)
        setting_names = [setting.name for setting in settings_of(factory)]
        for setting in arguments:
            if setting_names and setting not in setting_names and not _takes_any(factory):
                raise unknown(f"setting of {self.name} {name!r}", setting, setting_names, field=field or self.option)
        try:
            created = factory(**arguments)
        except AssayError:
            raise
        except (TypeError, ValueError) as error:
            raise BadInputError(f"{self.name} {name!r}: {error}", field=field or self.option) from error
        self.accept(created, name, field=field)
        remember(created, Made(self.name, name, MappingProxyType(arguments)))
        return created

    def accept(self, created: Any, name: str, *, field: str | None = None) -> Any:
        """What the member made, if it has everything that `makes` names. Raises BadInputError."""
        if missing := [required for required in self.makes if not hasattr(created, required)]:
            lacking = " and no ".join(missing)
            raise BadInputError(f"what {name} makes is no {self.name}: it has no {lacking}", field=field or self.option)
        return created

    def absolute(self, name: str, folder: Path | None = None) -> str:
        """The name with the file of a `file.py:Name` by its absolute path, as a record that outlives the folder has."""
        source, _, attribute = name.rpartition(":")
        return f"{(Path(folder or '.') / source).resolve()}:{attribute}" if source.endswith(".py") else name

    def name_of(self, thing: object) -> str:
        """The name that finds it again: its registered one, `module:Name`, or `/path/file.py:Name`."""
        module, attribute = getattr(thing, "__module__", ""), getattr(thing, "__qualname__", "")
        if module.startswith(_FILE_MODULE):  # under that name no other process finds it
            module = getattr(sys.modules.get(module), "__file__", module)
        target = f"{module}:{attribute}"
        return next((member.name for member in self.entries() if member.target == target), target)

    def _checked(self, thing: Any, name: str, field: str | None) -> T:
        if missing := [required for required in self.requires if not _has(thing, required)]:
            raise BadInputError(f"{name!r} is no {self.name}: it has no {' and no '.join(missing)}", field=field)
        member: T = thing
        return member


def absolute_name(name: Any, folder: Path) -> Any:
    """`file.py:Name` with its path made absolute from the folder; anything else as it is."""
    source, colon, attribute = name.rpartition(":") if isinstance(name, str) else ("", "", "")
    return f"{(folder / source).resolve()}:{attribute}" if colon and source.endswith(".py") else name


MANY = 20  #: names; more are not listed in an error


def unknown(
    what: str, name: object, names: Iterable[str], *, field: str | None = None, more: str = ""
) -> BadInputError:
    """The error for a name that is not there: it says the nearest names, or all of them where they are few."""
    names = sorted(names)
    near = nearest_names(name, names)
    choices = f"one of {', '.join(names)}" if names else "none is installed"
    if len(names) > MANY:
        nearest = difflib.get_close_matches(str(name), names, n=3, cutoff=0.0)
        choices = f"the nearest of {len(names)} are {', '.join(nearest)}"
    hint = near.removeprefix("; ") or choices
    return BadInputError(f"no {what} is named {name!r}; {hint}" + (f" (or {more})" if more else ""), field=field)


def check_names(given: Iterable[str], known: Collection[str], elsewhere: Mapping[str, str]) -> None:
    """Raises BadInputError for an option that is none of `known`. `elsewhere`: how other programs call those."""
    for name in given:
        if name not in known:
            if name in elsewhere:
                raise BadInputError(f"is called {elsewhere[name]} here", field=name)
            raise unknown("option", name, known)


def all_kinds() -> list[Kind[Any]]:
    """The kinds of every installed part of Assay, by name."""
    kinds: dict[str, Kind[Any]] = {}
    for point in announced(KIND_GROUP):
        group: Sequence[Kind[Any]] = point.load()
        for kind in group:
            kinds[kind.name] = kind
    return [kinds[name] for name in sorted(kinds)]


def kind_named(name: str) -> Kind[Any]:
    """The kind of that name. Raises BadInputError with the nearest names."""
    kinds = {kind.name: kind for kind in all_kinds()}
    if name not in kinds:
        raise unknown("kind of plug-in", name, kinds)
    return kinds[name]


def settings_of(thing: Any) -> list[Setting]:
    """The settings of a member: fields of a dataclass, or parameters of a function or class."""
    if isinstance(thing, type) and is_dataclass(thing):
        return [Setting(f.name, _text(f.type), _default(f.default, f.default_factory)) for f in fields(thing) if f.init]
    if not callable(thing):
        return []
    try:
        parameters = inspect.signature(thing).parameters.values()
    except (TypeError, ValueError):
        return []
    return [
        Setting(p.name, _text(p.annotation), None if p.default is p.empty else repr(p.default))
        for p in parameters
        if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]


_made: dict[int, tuple[weakref.ref[Any], Made]] = {}


def remember(instance: Any, origin: Made) -> None:
    """Keep how `thing` was made for as long as it lives. What cannot be referred to weakly is not kept."""
    key = id(instance)

    def forget(_: weakref.ref[Any]) -> None:
        _made.pop(key, None)

    try:
        reference = weakref.ref(instance, forget)
    except TypeError:
        return
    _made[key] = (reference, origin)


def made_by(thing: object) -> Made | None:
    """How `Kind.create` made it; None for anything else."""
    entry = _made.get(id(thing))
    return entry[1] if entry is not None and entry[0]() is thing else None


def announced(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, of all installed packages, whose metadata is read once a process."""
    return tuple(_entry_points().select(group=group))


@cache
def _entry_points() -> Any:
    return entry_points()


@cache
def _installed(kind: str) -> tuple[Member, ...]:
    members = []
    for point in announced(MEMBER_GROUP):
        prefix, _, name = point.name.partition(".")
        if prefix == kind and name:
            members.append(Member(kind, name, point.value, _package_of(point)))
    return tuple(members)


def _package_of(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an installed package"


def _load(target: str, what: str, field: str | None) -> Any:
    """The attribute that `package.module:Name` names."""
    module, _, path = target.partition(":")
    try:
        thing: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (module == missing or module.startswith(f"{missing}.")):
            file = f"{module}.py"
            hint = f"; a file beside you is {file}:{path}" if Path(file).is_file() else ""
            raise BadInputError(f"{what}: there is no module {missing!r}{hint}", field=field) from error
        raise BackendError(f"{what} needs the package {missing!r}, which is not installed") from error
    except ImportError as error:
        raise BackendError(f"{what} cannot be imported: {error}") from error
    for part in path.split("."):
        if not hasattr(thing, part):
            raise BadInputError(f"{what}: {module} has no {part!r}{nearest_names(part, _public(thing))}", field=field)
        thing = getattr(thing, part)
    return thing


def _from_file(folder: Path, source: str, attribute: str, field: str | None) -> Any:
    """The attribute of a Python file that is no part of a package; the file is read once."""
    path = (folder / source).resolve()
    if not path.is_file():
        raise NotFoundError(f"there is no file {path}")
    name = f"{_FILE_MODULE}{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
    module = sys.modules.get(name) or _execute(path, name)
    if not hasattr(module, attribute):
        near = nearest_names(attribute, _public(module))
        raise BadInputError(f"it has no {attribute!r}{near}", file=path, field=field)
    return getattr(module, attribute)


def _execute(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BadInputError("this is no Python file", file=path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look a class's module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise BadInputError(f"{type(error).__name__}: {error}", file=path) from error
    return module


def _public(thing: object) -> list[str]:
    return [attribute for attribute in dir(thing) if not attribute.startswith("_")]


def _has(thing: Any, name: str) -> bool:
    """Whether a class's instances (by method, class variable or field), or an object, have the attribute."""
    if not isinstance(thing, type):
        return hasattr(thing, name)
    in_fields = is_dataclass(thing) and name in (f.name for f in fields(thing))
    return in_fields or any(name in vars(base) for base in thing.__mro__ if base is not object)


def _takes_any(factory: Any) -> bool:
    try:
        return any(p.kind is p.VAR_KEYWORD for p in inspect.signature(factory).parameters.values())
    except (TypeError, ValueError):
        return True


def _text(annotation: Any) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    if isinstance(annotation, str):  # without the range and the description that `assay.settings` reads
        return re.sub(r"^Annotated\[(.+?), (?:Ge|Gt|Le|Lt|Help)\(.*\)\]$", r"\1", annotation)
    plain = inspect.formatannotation(annotation.__origin__ if hasattr(annotation, "__metadata__") else annotation)
    return re.sub(r"(?<!['\"\w])(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", plain)  # without the modules of its types


def _default(default: Any, factory: Any) -> str | None:
    if default is not MISSING:
        return repr(default)
    return None if factory is MISSING else repr(factory())
