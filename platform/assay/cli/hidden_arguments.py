"""Secrets among the arguments of the command, which every user of the machine reads in a list of processes.

A process that was started with one replaces itself at once: same process id, the value hidden in its command line, the
real arguments in its environment, which only the same user can read, and from which they are removed before anything
else is started. Better still is not to write the value: the option's environment variable, or a file of keys.
"""

import json
import os
import sys
from collections.abc import Sequence

SECRETS = ("--api-key", "--watch-key", "--rewards-key")  #: options whose value is hidden
HIDDEN = "***"
_VARIABLE = "ASSAY_HIDDEN_ARGUMENTS"


def process_arguments() -> list[str]:
    """The arguments this process was started with. Where one is a secret, the process starts itself anew."""
    if (stored := os.environ.pop(_VARIABLE, None)) is not None:
        return [str(argument) for argument in json.loads(stored)]
    arguments = sys.argv[1:]
    hidden = masked(arguments)
    if hidden != arguments:
        before = sys.orig_argv[1 : len(sys.orig_argv) - len(arguments)]
        os.execve(sys.executable, [sys.executable, *before, *hidden], {**os.environ, _VARIABLE: json.dumps(arguments)})
    return arguments


def masked(arguments: Sequence[str]) -> list[str]:
    """The arguments with the values of `SECRETS` hidden."""
    hidden = list(arguments)
    for index, argument in enumerate(arguments):
        name, assigned, _ = argument.partition("=")
        if name not in SECRETS:
            continue
        if assigned:
            hidden[index] = f"{name}={HIDDEN}"
        elif index + 1 < len(hidden):
            hidden[index + 1] = HIDDEN
    return hidden
