"""Shards mapped on this machine: in this process, or by processes of their own.

A worker that is killed takes its unit's work with it: the unit is mapped again, `TRIES` times at most. Workers end with
the process that started them, however it ends.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing import get_context

from assay.compute.job import JobSpec, ShardJob, Unit, UnitDone, map_shard
from assay.errors import BackendError

TRIES = 3
_LOOK_S = 0.5


@dataclass(frozen=True)
class LocalExecutor:
    """`workers`: 0 maps in this process, where a model may use all cores; else so many processes."""

    workers: int = 0

    def run(self, spec: JobSpec, units: Sequence[Unit], *, opened: ShardJob | None = None) -> Iterator[UnitDone]:
        """Map the units; results come as they are done. `opened`: the job where this process has it open already.

        Raises what the job raises, and BackendError for a unit whose worker died `TRIES` times.
        """
        if self.workers < 1:
            yield from _in_this_process(spec, units, opened)
        else:
            yield from self._in_processes(spec, units)

    def _in_processes(self, spec: JobSpec, units: Sequence[Unit]) -> Iterator[UnitDone]:
        tries = {unit.number: 0 for unit in units}
        unmapped = list(units)
        while unmapped:
            suspects = [unit for unit in unmapped if tries[unit.number]]  # one by one, so that the right one is named
            pool = ProcessPoolExecutor(self.workers, get_context("spawn"), end_with, (os.getpid(),))
            try:
                for done in _mapped(pool, spec, suspects or [*unmapped], 1 if suspects else 2 * self.workers, tries):
                    unmapped.remove(done.unit)
                    yield done
            except BrokenProcessPool as error:
                for unit in unmapped:
                    if tries[unit.number] >= TRIES:
                        raise BackendError(f"{unit.shard}: its worker was killed {TRIES} times") from error
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _in_this_process(spec: JobSpec, units: Sequence[Unit], opened: ShardJob | None) -> Iterator[UnitDone]:
    job = opened
    for unit in units:
        if job is None:
            job = spec.build()
            job.open()
        yield map_shard(job, spec.digest, unit)


def _mapped(
    pool: ProcessPoolExecutor, spec: JobSpec, units: Sequence[Unit], most: int, tries: dict[int, int]
) -> Iterator[UnitDone]:
    """`most`: units in flight. Counts a try for those that were in flight when the pool broke."""
    waiting, flying = iter(units), dict[Future[UnitDone], Unit]()
    unit: Unit | None = None
    try:
        while True:
            while len(flying) < most and (unit := next(waiting, None)) is not None:
                flying[pool.submit(_map_in_worker, spec, unit)] = unit
            if not flying:
                return
            done, _ = wait(flying, return_when=FIRST_COMPLETED)
            for future in sorted(done, key=lambda future: future.exception() is not None):  # no result is lost
                result = future.result()
                del flying[future]
                yield result
    except BrokenProcessPool:
        for suspect in flying.values() or filter(None, [unit]):
            tries[suspect.number] += 1
        raise


@lru_cache(maxsize=1)
def _opened(digest: str, target: str, arguments: str) -> ShardJob:
    import json

    job = JobSpec(target, json.loads(arguments)).build()
    job.open()
    return job


def opened_once(spec: JobSpec) -> ShardJob:
    """The job of this worker, opened at its first unit."""
    import json

    return _opened(spec.digest, spec.target, json.dumps(spec.arguments, sort_keys=True))


def _map_in_worker(spec: JobSpec, unit: Unit) -> UnitDone:
    return map_shard(opened_once(spec), spec.digest, unit, f"process {os.getpid()}")


def end_with(parent: int) -> None:
    """This process ends when its parent has."""

    def look() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_S)
        os._exit(1)

    threading.Thread(target=look, daemon=True).start()
