"""The real app on a free port, and headless Chromium to open it with: for `tcl bench app` and the browser tests."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--use-gl=angle", "--use-angle=swiftshader",
    "--enable-unsafe-swiftshader",
]  # fmt: skip
"""WebGL in software: the map is a scattergl."""


@contextmanager
def served(workspace: Path, *datasets: Path, port: int | None = None, log: Path | None = None) -> Iterator[tuple[str, int]]:
    """`tcl app` in a process of its own; yields its address and process id."""
    port = port or free_port()
    environment = os.environ | {"TCL_WORKSPACE": str(workspace)}
    output = (log or workspace.with_name("app.log")).open("wb")
    server = subprocess.Popen(
        [sys.executable, "-m", "tcl", "app", *map(str, datasets), "--no-builtin", "--port", str(port)],
        env=environment,
        stdout=output,
        stderr=output,
    )
    try:
        wait_for(f"http://localhost:{port}/_stcore/health", server)
        yield f"http://localhost:{port}", server.pid
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=20)
        output.close()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(address: str, server: subprocess.Popen[bytes], timeout: float = 60) -> None:
    """Until it answers. Raises RuntimeError when the server has ended, TimeoutError after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise RuntimeError(f"the app ended with status {server.returncode}")
        try:
            urllib.request.urlopen(address, timeout=2).read()
            return
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(address)
