"""Run one function in a fresh process: what it crashes, leaks or sets (thread pools!) costs the caller nothing.

Timing PyTorch beside TVM in one process would be unfair to both: each keeps its own spinning thread pool.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tcl.errors import UserError

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS")

FREE_THREADS = {"TVM_BIND_THREADS": "0"}
"""TVM binds the threads of its pool to a core each, but not the thread that calls a kernel and takes its share of the work: where that
one happens to be on a bound thread's core (after a build, say) both stay there, and kernels take twice as long."""


class ProcessFailed(RuntimeError):
    """The process died, ran out of time, or its function raised; the message says which."""


def call(function: Callable[..., Any], *args: Any, threads: int = 1, timeout_s: float = 600.0, **kwargs: Any) -> Any:
    """`function(*args, **kwargs)` in a process of its own, with `threads` threads for every numeric library.

    `function` is a module-level function; arguments and the result travel by pickle between the two processes.

    Raises:
        UserError: the function raised it.
        ProcessFailed: anything else went wrong.
    """
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    wanted = dict.fromkeys(THREAD_VARIABLES, str(threads)) | FREE_THREADS
    saved = {name: os.environ.get(name) for name in wanted}
    os.environ.update(wanted)  # read by the libraries when the child imports them
    try:
        process = context.Process(target=_child, args=(there, function, args, kwargs), daemon=True)
        process.start()
    finally:
        for name, value in saved.items():
            if value is None:
                os.environ.pop(name)
            else:
                os.environ[name] = value
    there.close()
    try:
        if not here.poll(timeout_s):
            raise ProcessFailed(f"{function.__name__} did not end within {timeout_s:.0f} s")
        try:
            kind, value = here.recv()
        except EOFError:
            process.join()
            raise ProcessFailed(f"{function.__name__} ended its process (exit code {process.exitcode})") from None
    finally:
        if process.is_alive():
            process.join(2.0)
        if process.is_alive():
            process.kill()
            process.join()
        here.close()
    if kind == "user":
        raise UserError(value)
    if kind == "error":
        raise ProcessFailed(f"{function.__name__}: {value}")
    return value


def _child(pipe: Connection, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    try:
        answer = ("value", function(*args, **kwargs))
    except UserError as error:
        answer = ("user", str(error))
    except Exception as error:  # any failure of the function is the caller's to judge, with its message
        answer = ("error", f"{type(error).__name__}: {str(error).strip()[-500:]}")
    pipe.send(answer)
    pipe.close()
