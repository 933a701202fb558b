"""A process that checks constraints with untrusted input, fed by `worker_pool`.

Started as `python -P -m assay_serving.verifiers.sandbox.worker MEMORY`.

Covers: one JSON object a line on standard input (`constraints`, `response`, `seconds`); on standard output
`{"ready": true}` when the packages for it are there, then `verdicts` or `failure`. It ends itself when an item exceeds
its time limit, in case its parent is gone. Leaves out: isolation from the machine, which only programs need
(`program_runner`).
"""

import json
import os
import resource
import signal
import sys
from typing import Any, BinaryIO

from assay.errors import BackendError, BadInputError
from assay_serving.verifiers.catalogue import constraint_from_dict

LATE = 5.0  #: seconds after the time limit before a worker ends itself; its parent should have killed it


def main() -> None:
    memory = int(sys.argv[1])
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (memory if most == resource.RLIM_INFINITY else min(memory, most), most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    replies = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # output of libraries is no reply
    for line in sys.stdin.buffer:
        _answer(json.loads(line), replies)


def _answer(request: dict[str, Any], replies: BinaryIO) -> None:
    try:
        constraints = [constraint_from_dict(payload, allow_code=True) for payload in request["constraints"]]
        for constraint in constraints:
            constraint.prepare(request["response"])
        _say(replies, {"ready": True})
        signal.setitimer(signal.ITIMER_REAL, request["seconds"] + LATE)
        verdicts = [constraint.check(request["response"]) for constraint in constraints]
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(replies, {"verdicts": [[verdict.passed, verdict.detail] for verdict in verdicts]})
    except MemoryError:
        os._exit(3)  # the state of this process is undefined
    except (BadInputError, BackendError) as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(replies, {"failure": error.code, "message": str(error)})
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(replies, {"failure": "verifier_crashed", "message": f"{type(error).__name__}: {error}"[:500]})


def _say(replies: BinaryIO, message: dict[str, Any]) -> None:
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[replies.write(data) or 0 :]


if __name__ == "__main__":
    main()
