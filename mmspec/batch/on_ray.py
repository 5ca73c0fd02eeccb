"""The requests of a batch on a Ray cluster.

Every worker loads the models once. What is computed travels back to the process that began, which alone writes
files: the machines need no common disk. A worker that dies is started again by Ray, and so is its request.
"""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from mmspec.api import Pipe
from mmspec.batch.executor import Executor, Failure, Plan, Success, attempt
from mmspec.errors import InputError, MmspecError
from mmspec.types import Request

__all__ = ["OnRay"]


class OnRay(Executor):
    """Workers on a running cluster, or on one that is started on this machine for the run.

    `num_workers` work side by side, each with `cpus_per_worker` and `gpus_per_worker` of the cluster's. A request
    whose worker died is begun `max_attempts` times at most. `address` is the cluster's, "auto" for the one on this
    machine, empty for one of its own. Raises `InputError` where Ray is not installed, and for a number too small.
    """

    def __init__(
        self, *, num_workers: int, cpus_per_worker: float, gpus_per_worker: float, max_attempts: int, address: str
    ) -> None:
        for name, value in (("num_workers", num_workers), ("max_attempts", max_attempts)):
            if value < 1:
                raise InputError(f"executor.{name}={value} is too small: expected at least 1")
        try:
            os.environ.setdefault(
                "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0"
            )  # a worker without GPUs: Ray's coming default
            import ray
        except ImportError as error:
            raise InputError("executor=ray needs Ray: pip install 'mmspec[ray]'") from error
        self._ray = ray
        self._num_workers, self._max_attempts, self._address = num_workers, max_attempts, address
        self._cpus, self._gpus = cpus_per_worker, gpus_per_worker

    def run(self, plan: Plan, requests: Sequence[Request]) -> Iterator[tuple[int, Success | Failure]]:
        """In the order in which they are done."""
        num_workers = min(self._num_workers, len(requests))
        # Ray prints what it has to say of dead workers, some of it while it shuts down; standard output is for results.
        with contextlib.redirect_stdout(sys.stderr):
            self._connect(num_workers)
            try:
                yield from self._run(self._workers(plan, num_workers), requests)
            finally:
                self._ray.shutdown()

    def _connect(self, num_workers: int) -> None:
        own: dict[str, Any] = {"address": self._address}
        if not self._address:
            own = {
                "address": "local",
                "num_cpus": max(1, round(num_workers * self._cpus + 0.5)),
                "include_dashboard": False,
            }
        try:
            self._ray.init(**own, log_to_driver=False, logging_level=logging.ERROR, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            place = self._address or "here"
            raise InputError(
                f"executor.address={place}: no Ray cluster answers ({str(error).splitlines()[0]})"
            ) from error

    def _workers(self, plan: Plan, num_workers: int) -> list[Any]:
        import torch

        kind = self._ray.remote(_Worker).options(
            num_cpus=self._cpus,
            num_gpus=self._gpus,
            max_restarts=-1,
            max_task_retries=self._max_attempts - 1,
        )
        return [kind.remote(plan, torch.get_num_threads()) for _ in range(num_workers)]

    def _run(self, workers: list[Any], requests: Sequence[Request]) -> Iterator[tuple[int, Success | Failure]]:
        waiting = iter(enumerate(requests))
        running: dict[Any, tuple[int, Any]] = {}

        def begin(worker: Any) -> None:
            for index, request in waiting:
                running[worker.answer.remote(request)] = (index, worker)
                return

        for worker in workers:
            begin(worker)
        while running:
            (done,), _ = self._ray.wait([*running])
            index, worker = running.pop(done)
            outcome = self._outcome(done)
            begin(worker)
            yield index, outcome

    def _outcome(self, done: Any) -> Success | Failure:
        try:
            return self._ray.get(done)
        except self._ray.exceptions.RayActorError:
            return Failure(f"its worker died {self._max_attempts} times", 0.0)
        except self._ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, MmspecError):  # the models cannot be had: there is no point in going on
                raise error.cause from None
            raise


class _Worker:
    """One process with models of its own; Ray makes an actor of it."""

    def __init__(self, plan: Plan, num_threads: int) -> None:
        self._plan, self._num_threads = plan, num_threads
        self._pipe: Pipe | None = None

    def answer(self, request: Request) -> Success | Failure:
        """Load the models at the first request: what that raises reaches the caller as it is."""
        if self._pipe is None:
            import torch

            # As many as where the batch began: another number adds in another order, which changes the last bits.
            torch.set_num_threads(self._num_threads)
            self._pipe = self._plan.load()
        return attempt(self._pipe, request)
