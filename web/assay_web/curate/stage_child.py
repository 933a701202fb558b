"""The process of a stage: `python -m assay_web.curate.stage_child FOLDER ARGUMENTS...` runs `assay ARGUMENTS...`.

Covers: handling Ctrl-C even if the web server runs in the background, where children ignore it; writing the exit status
to FOLDER, for a later web server. Leaves out: what the command does.
"""

import json
import signal
import sys
import time
from pathlib import Path

from assay.system.atomic_files import replacing

EXIT_FILE = "exit.json"


def run(folder: Path, arguments: list[str]) -> None:
    """Does not return."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    code = 1
    try:
        from assay.cli.main import main
        from assay.system.gc_threshold import collect_less

        collect_less()
        main(arguments)  # which then raises, where the command alone would end the process
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        raise
    except KeyboardInterrupt:  # before the command could take it
        code = 130
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):  # nothing is left to interrupt
            signal.signal(number, signal.SIG_IGN)
        with replacing(folder / EXIT_FILE) as temporary:
            temporary.write_text(json.dumps({"code": code, "at": time.time()}), encoding="utf-8")


if __name__ == "__main__":
    run(Path(sys.argv[1]), sys.argv[2:])
