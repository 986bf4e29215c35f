"""The worker process of `tcl.tuning.remote`: compiles for another machine, and runs there what it compiled, over TVM's RPC.

Requests and answers are those of `tcl.tuning.worker`. A program that takes the device's server down with it, or hangs there, costs
this process's session: the coordinator replaces the process and asks the tracker for another device.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tcl.tuning.worker import Refused, Worker, failure_of, largest_error


class RemoteWorker(Worker):
    """One method per request, beside those that compile."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory(prefix="tcl-remote-")
        self.session: Any = None
        self.files: dict[str, Path] = {}

    def acquire(self, host: str, port: int, key: str, session_s: float) -> dict[str, Any]:
        """Wait for a device of the tracker's; it is this process's alone until `release`."""
        from tvm import rpc

        self.session = rpc.connect_tracker(host, port).request(key, session_timeout=session_s, max_retry=1)
        return {}

    def release(self) -> dict[str, Any]:
        """Give the device back."""
        self.session = None
        return {}

    def link(self, task: str, target: str, key: str, schedule: str, cc: str) -> dict[str, Any]:
        """Compile a schedule of `task` for the device and link it with the compiler `cc` ("": this machine's)."""
        library = self.compile(task, target, schedule, here=False)
        path = Path(self.folder.name) / f"{key}.so"
        try:
            library.export_library(str(path), **({"cc": cc} if cc else {}))
        except Exception as error:
            raise Refused(*failure_of(error, "build_error")) from None
        self.files[key] = path
        return {}

    def run_there(
        self, task: str, key: str, repeats: int, repeat_s: float, best_s: float, cutoff: float, budget_s: float
    ) -> dict[str, Any]:
        """Time a linked program on the acquired device; as `Worker.run` does here."""
        library, device = self._load(key)
        try:
            arguments = self._there(task, device)
            once = float(library.time_evaluator("main", device, number=1, repeat=1)(*arguments).results[0])
            hopeless = best_s > 0 and once > cutoff * best_s
            if once > 2 * budget_s or (hopeless and once >= repeat_s):
                return {"costs": [once]}
            count = 1 if hopeless else min(repeats, max(1, int(budget_s / max(once, repeat_s))))
            number = min(round(repeat_s / max(once, 1e-7)) + 1, 100_000)
            timed = library.time_evaluator("main", device, number=number, repeat=count)
            return {"costs": [float(c) for c in timed(*arguments).results]}
        except Exception as error:
            raise Refused(*failure_of(error, "run_error")) from None
        finally:
            self.files.pop(key).unlink(missing_ok=True)

    def check_there(self, task: str, key: str, here: str) -> dict[str, Any]:
        """The largest error of a linked program's output on the device against the unscheduled task's on this machine (target
        `here`), relative to the largest expected value."""
        if self.expected is None or self.expected[0] != task:
            self.built["unscheduled"] = self.compile(task, here, "")
            self.expected = (task, self._outputs(task, self.built.pop("unscheduled"), "cpu"))
        library, device = self._load(key)
        arguments = self._there(task, device)
        blank = np.full(arguments[-1].shape, np.nan if arguments[-1].dtype.startswith("float") else 77, dtype=arguments[-1].dtype)
        arguments[-1].copyfrom(blank)
        library["main"](*arguments)
        return {"error": largest_error(arguments[-1].numpy(), self.expected[1][0])}

    def _load(self, key: str) -> tuple[Any, Any]:
        path = self.files[key]
        self.session.upload(str(path))
        library = self.session.load_module(path.name)
        self.session.remove(path.name)
        return library, self.session.cpu(0)

    def _there(self, task: str, device: Any) -> list[Any]:
        """The task's arguments on the device: the values that `Worker` uses here."""
        import tvm

        return [tvm.runtime.tensor(t.numpy(), device) for t in self._arguments(task)]
