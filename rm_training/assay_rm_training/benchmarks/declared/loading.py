"""A declared benchmark from its YAML file: the protocol's class, with paths made absolute.

Those that ship with the package are attributes of this module, which `BENCHMARKS` names. Leaves out: what the YAML may
say (`description`), the protocols.
"""

from dataclasses import replace
from functools import cache
from importlib import import_module, resources
from pathlib import Path

from assay.errors import BadInputError, NotFoundError
from assay.registry import unknown
from assay_rm_training.benchmarks.declared.declared_benchmark import DeclaredBenchmark
from assay_rm_training.benchmarks.declared.description import description_of

_HERE = "assay_rm_training.benchmarks.declared"
PROTOCOLS = {
    "pair": f"{_HERE}.pairwise:DeclaredPairs",
    "three-way": f"{_HERE}.pairwise:ThreeWay",
    "best-of-n": f"{_HERE}.lists:BestOfNLists",
    "listwise": f"{_HERE}.lists:Listwise",
    "item-auc": f"{_HERE}.lists:ItemAuc",
    "first-error": f"{_HERE}.first_error:FirstErrors",
    "system-ranking": f"{_HERE}.system_ranking:SystemRanking",
}


def declared(text: str, name: str, file: Path | None = None) -> DeclaredBenchmark:
    """From YAML text; paths are relative to `file`. Raises BadInputError that names the file and the field."""
    try:
        description = description_of(text, name)
        folder = file.parent if file is not None else Path()
        rows = tuple(str(folder / Path(path).expanduser()) for path in description.rows)
        systems = description.systems
        if systems is not None:
            systems = replace(systems, rows=str(folder / Path(systems.rows).expanduser()))
        if description.protocol not in PROTOCOLS:
            raise unknown("protocol", description.protocol, PROTOCOLS, field="protocol")
        module, _, attribute = PROTOCOLS[description.protocol].partition(":")
        bench: DeclaredBenchmark = getattr(import_module(module), attribute)(
            replace(description, rows=rows, systems=systems)
        )
        return bench
    except BadInputError as error:
        if error.file is not None:
            raise
        raise BadInputError(str(error), file=file or name) from error


def declared_in(path: Path) -> DeclaredBenchmark:
    """Of a YAML file. Raises NotFoundError without it."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise NotFoundError(f"no benchmark {path}")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"cannot be read as text: {error}", file=path) from error
    return declared(text, path.name.split(".")[0], path)


@cache
def __getattr__(name: str) -> DeclaredBenchmark:
    path = resources.files("assay_rm_training") / "benchmarks" / "declared" / "published" / f"{name}.yaml"
    if not path.is_file():
        raise AttributeError(name)
    return declared(path.read_text(encoding="utf-8"), name)
