"""`tcl app`: the pages, on this machine only."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from tcl.errors import UserError


def run(
    datasets: Annotated[list[Path] | None, typer.Argument(metavar="DIR", help="Datasets to offer beside the built-in ones.")] = None,
    builtin: Annotated[bool, typer.Option(help="Whether to offer the built-in datasets as well.")] = True,
    port: Annotated[int, typer.Option(help="Port on localhost.")] = 8501,
) -> None:
    """Open the app in a browser: http://localhost:PORT."""
    from tcl.programs.dataset import Dataset

    for path in datasets or []:
        Dataset.open(path)
    root = Path(__file__).resolve().parent.parent.parent
    if not (root / "app" / "server.py").exists():
        raise UserError(f"The app's pages are not in {root}.", hint="Run `tcl app` from a checkout of the project.")
    _must_be_free(port)
    environment = os.environ | {"TCL_APP_DATASETS": os.pathsep.join(str(p.resolve()) for p in datasets or [])}
    environment["TCL_APP_BUILTIN"] = str(int(builtin))
    # Streamlit reads .streamlit/config.toml from the current folder; what must hold wherever it is started is said here as well.
    settings = {"server.port": port, "server.address": "localhost", "server.headless": "true", "browser.gatherUsageStats": "false"}
    flags = [f"--{name}={value}" for name, value in settings.items()]
    if Path.cwd() != root:
        environment["TCL_WORKSPACE"] = environment.get("TCL_WORKSPACE", str(Path.cwd() / "workspace"))
        os.chdir(root)
    os.execvpe(sys.executable, [sys.executable, "-m", "streamlit", "run", str(root / "app" / "server.py"), *flags], environment)


def _must_be_free(port: int) -> None:
    """Raises UserError where something listens on the port already, or it may not be used."""
    if not 1 <= port <= 65535:
        raise UserError(f"{port} is not a port.", hint="Ports go from 1 to 65535.")
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UserError(f"Port {port} cannot be used: {error.strerror}.", hint=f"Choose another: tcl app --port {port + 1}") from None
