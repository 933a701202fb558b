"""`assay compose`: check and describe the file of a composed reward, or print an example."""

from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.options import JsonOption, emit

if TYPE_CHECKING:
    from assay_serving.composition.description import ComposedSpec, PartSpec


def compose(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE.yaml", help="Of a composed reward.", show_default=False)
    ] = None,
    example: Annotated[bool, typer.Option("--example", help="Print a complete commented file.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Check the file of a composed reward and print what it computes; its models are not loaded.

    Use a composed reward like any model: assay score --model FILE, assay serve FILE.

    Example: `assay compose --example > safe-helpful.yaml`
    """
    from assay.errors import BadInputError

    if example == (file is not None):
        raise BadInputError("give either a FILE or --example")
    if file is None:
        text = resources.files("assay_serving.composition").joinpath("example.yaml").read_text(encoding="utf-8")
        emit({"example": text}, text.rstrip("\n"), as_json=as_json)
        return
    from assay_serving.composition.description import ComposedSpec

    spec = ComposedSpec.read(file)
    formulas = {name.removeprefix("steps."): combination.formula for name, combination in spec.combinations()}
    emit({"file": str(file), "parts": _parts(spec), "formulas": formulas}, _readable(spec, formulas), as_json=as_json)


def _parts(spec: "ComposedSpec") -> list[dict[str, object]]:
    return [
        {"name": part.name, "of": _source(part), "shaping": [shape.kind for shape in part.shaping]}
        for part in spec.parts
    ]


def _source(part: "PartSpec") -> str:
    if part.model is None:
        checks = part.checks()
        held = ", ".join(check.kind for check in checks) if checks else "constraints of the label"
        return f"{'all' if part.measure == 'passed' else 'share'} of: {held}"
    served = f" ({part.served})" if part.served else ""
    principle = f", asked: {part.principle}" if part.principle else ""
    return f"{part.model}{served}{f', corrected by {part.correct}' if part.correct else ''}{principle}"


def _readable(spec: "ComposedSpec", formulas: dict[str, str]) -> str:
    width = max(len(name) for name in [*(part.name for part in spec.parts), *spec.steps, "reward"])
    lines = []
    for part in spec.parts:
        shapes = "".join(f" | {shape.kind}" for shape in part.shaping)
        lines.append(f"{part.name:<{width}}  {_source(part)}{shapes}")
    lines += [f"{name:<{width}}  = {formula}" for name, formula in formulas.items() if name in spec.steps]
    last = formulas.get("combine", spec.parts[0].name)
    return "\n".join([*lines, f"{'reward':<{width}}  = {last}"])
