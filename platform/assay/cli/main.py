"""Entry point of the `assay` command.

Covers: assembling the command from entry points of the group `assay.commands` (each is the first word of a command and
the function that adds it to the Typer application), turning errors into one line and an exit code. Leaves out: the
commands.
Registering modules import no torch, transformers or duckdb at their top: `assay --help` answers at once.

Exit codes: 0 done; 1 other error; 2 bad input or usage; 3 not found; 4 busy; 5 backend; 130 interrupted.
"""

import json
import sys
from functools import cache
from typing import Any

import typer

from assay import __version__
from assay.cli.help_panels import GroupedCommands, assign_panels
from assay.cli.hidden_arguments import process_arguments
from assay.cli.options import plain_message
from assay.errors import AssayError, BackendError
from assay.registry import announced
from assay.system.fast_exit import exit_fast
from assay.system.full_disk import full_disk_line
from assay.system.gc_threshold import collect_less

GROUP = "assay.commands"
INTERRUPTED = 130
#: Options of other programs -> what the commands that have them call them.
ELSEWHERE = {"--learning-rate": "--lr", "--max-steps": "--steps", "--num-generations": "--group-size"}


def build_app(word: str = "") -> typer.Typer:
    """The command with what announces `word`, its first argument; where nothing does, with every installed command."""
    app = typer.Typer(
        name="assay",
        help="Turn raw preference data into rewards you can trust: curate, train, serve, score, optimise.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
        cls=GroupedCommands,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback(invoke_without_command=True)
    def root(
        version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    ) -> None:
        if version:
            typer.echo(f"assay {__version__}")
            raise typer.Exit

    points = sorted(announced(GROUP), key=lambda point: point.value)
    matching = [point for point in points if point.name == word] or points
    for register in dict.fromkeys(point.load() for point in matching):  # one may announce several words
        register(app)
    assign_panels(app)
    return app


@cache
def _command(word: str) -> Any:
    """The application as its parser, which takes longer to make than to use: once a process and word."""
    return typer.main.get_command(build_app(word))


def main(arguments: list[str] | None = None) -> None:
    """Run the command and exit the process. With `arguments` the process is the caller's, and left as it is."""
    if arguments is None:
        collect_less()
    argv = process_arguments() if arguments is None else arguments
    try:
        result = _command(argv[0] if argv else "")(args=argv, standalone_mode=False)
        code = result if isinstance(result, int) else 0
        if code == INTERRUPTED:  # Ctrl-C in a command: typer makes it this code
            _complain("interrupted", "interrupted", as_json=False)
    except AssayError as error:
        line = full_disk_line(error, argv)
        code = error.exit_code if line is None else BackendError.exit_code
        _complain(error.code if line is None else BackendError.code, line or str(error), as_json="--json" in argv)
    except typer.TyperException as error:  # wrong usage: an option that is not there, a word for a number
        code = error.exit_code
        if isinstance(error, typer.BadParameter):
            error.message = plain_message(error)
        if message := " ".join(error.format_message().split()).rstrip("."):  # empty where the help was printed instead
            context = getattr(error, "ctx", None)
            hint = f"; see {context.command_path} --help" if context is not None else ""
            here = ELSEWHERE.get(getattr(error, "option_name", ""))
            if context is not None and any(here in parameter.opts for parameter in context.command.params):
                hint = f"; here it is {here}{hint}"
            _complain("usage", message + hint, as_json="--json" in argv)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
        _complain("interrupted", "interrupted", as_json=False)
    except BrokenPipeError:
        code = 0
    except Exception as error:  # a folder that cannot be written, a full disk: what no part has said better
        line = full_disk_line(error, argv)
        if line is None and not isinstance(error, OSError):
            raise
        if line is None and isinstance(error, OSError):
            where = f"{error.filename}: " if error.filename else ""
            line = f"{where}{error.strerror or error}"
        code = BackendError.exit_code
        _complain(BackendError.code, str(line), as_json="--json" in argv)
    if arguments is None:
        exit_fast(code)
    raise SystemExit(code)


def _complain(code: str, message: str, *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"error": {"code": code, "message": message}}))
    print(f"assay: {message}", file=sys.stderr)
