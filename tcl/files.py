"""Replacing a file whole: a reader sees the old or the new text, never half of it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Replace `path` atomically; a full disk leaves the old text. `durable=False` skips the wait for the disk: for text that
    is written again in a second (a job's progress)."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w") as file:
            json.dump(value, file, indent=1 if durable else None)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def load_tensors(path: Path) -> dict[str, Any]:
    """The torch tensors of a safetensors file. Raises ValueError where it is cut or no such file, OSError where it cannot be read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"{path.name}: {error}") from None
