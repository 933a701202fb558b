"""The prompt templates (`assay_pipelines/prompts/*.md`, or a user's folder), in Jinja's sandbox, and their hash."""

import hashlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from jinja2.sandbox import ImmutableSandboxedEnvironment

from assay.errors import BadInputError
from assay.ids import digest

GUIDELINE = "guideline.md"


class Prompts:
    """The shipped templates, with those of `folder` in their place. Raises BadInputError for a file of another name,
    and for an invalid template."""

    def __init__(self, folder: Path | None = None) -> None:
        shipped = resources.files("assay_pipelines") / "prompts"
        self._texts = {e.name: e.read_text(encoding="utf-8") for e in shipped.iterdir() if e.name.endswith(".md")}
        self._files: dict[str, Path] = {}
        if folder is not None:
            self._read_own(folder)
        self._environment = ImmutableSandboxedEnvironment(
            undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, autoescape=False
        )
        self._compiled = {name: self._compile(name, text) for name, text in self._texts.items()}

    @property
    def names(self) -> list[str]:
        return sorted(self._texts)

    def text(self, name: str) -> str:
        return self._texts[name]

    def hash(self, *names: str) -> str:
        """Identity of these templates, in any order."""
        return hashlib.sha256("\x1f".join(f"{n}\x1e{self._texts[n]}" for n in sorted(names)).encode()).hexdigest()[:16]

    def render(self, name: str, **values: Any) -> str:
        """Raises BadInputError where the template needs a value that is missing."""
        try:
            return self._compiled[name].render(**values).strip()
        except jinja2.TemplateError as error:
            raise BadInputError(f"cannot be filled in: {error}", file=self._where(name)) from error

    def copy_to(self, folder: Path) -> list[Path]:
        """Write the templates to `folder` for editing; existing files are skipped."""
        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for name, text in sorted(self._texts.items()):
            target = folder / name
            if not target.exists():
                target.write_text(text, encoding="utf-8")
                written.append(target)
        return written

    def _read_own(self, folder: Path) -> None:
        if not folder.is_dir():
            raise BadInputError("no such folder", file=folder)
        for path in sorted(folder.glob("*.md")):
            if path.name not in self._texts:
                raise BadInputError(f"is not a prompt template; there are {', '.join(sorted(self._texts))}", file=path)
            try:
                self._texts[path.name] = path.read_text(encoding="utf-8")
            except UnicodeDecodeError as error:
                raise BadInputError("is not UTF-8 text", file=path) from error
            self._files[path.name] = path

    def _compile(self, name: str, text: str) -> jinja2.Template:
        try:
            return self._environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise BadInputError(f"not a template: {error.message}", file=self._where(name), row=error.lineno) from error

    def _where(self, name: str) -> str:
        return str(self._files.get(name, name))


def mark(*texts: str) -> str:
    """Eight hex digits of the texts' hash, for the lines that separate texts in a prompt: no text can contain the mark
    of its own section and pretend to end it."""
    return digest("\x1f".join(texts))[:8]


def turns(messages: Sequence[Any]) -> list[dict[str, str]]:
    """Messages as the templates get them."""
    return [{"role": str(m.role), "content": m.text} for m in messages]
