"""TenSet's `network_info`: which network holds which task how often, from its `*.task.pkl` files, without unpickling them.

A pickle is a program, and loading one runs it. `pickletools` only lists its instructions; the workload keys are string constants
among them, and the weights the whole numbers of the last list (or the bytes of a NumPy array). Anything else is ignored.
"""

from __future__ import annotations

import pickletools
import re
import struct
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import BinaryIO

from tcl.programs.types import NetworkUse
from tcl.records.sources import Source

LARGEST = 64 << 20
"""Bytes of a `.task.pkl` that are looked at; real ones are some hundred kB."""
_SUFFIX = ".task.pkl"
_KEY = re.compile(r'\["[0-9a-f]{32}"[^\\]*\]')


def find_networks(sources: Sequence[Source]) -> dict[str, tuple[NetworkUse, ...]]:
    """Workload key -> the networks that hold it, from every `*.task.pkl` among the sources (plain or in a zip)."""
    uses: dict[str, dict[str, float]] = {}
    for name, stream in _files(sources):
        for key, weight in _read(stream):
            uses.setdefault(key, {})[network_name(name)] = weight
    return {key: tuple(NetworkUse(n, w) for n, w in sorted(networks.items())) for key, networks in uses.items()}


def network_name(file: str) -> str:
    """`((resnet_50,[(1,3,224,224)]),llvm).task.pkl` -> `resnet_50 1x3x224x224`."""
    stem = PurePosixPath(file).name.removesuffix(_SUFFIX)
    match = re.fullmatch(r"\(\((?P<name>[\w.-]+),\[(?P<shapes>.*)\]\),.*\)", stem)
    if not match:
        return stem
    shapes = ["x".join(re.findall(r"\d+", shape)) for shape in re.findall(r"\([^()]*\)", match["shapes"])]
    return " ".join([match["name"], *shapes])


def _files(sources: Sequence[Source]) -> Iterator[tuple[str, BinaryIO]]:
    for source in sources:
        try:
            if source.shown.endswith(_SUFFIX) and source.size <= LARGEST:
                with source.path.open("rb") as stream:
                    yield source.shown, stream
            elif zipfile.is_zipfile(source.path):
                with zipfile.ZipFile(source.path) as archive:
                    for info in archive.infolist():
                        if info.filename.endswith(_SUFFIX) and info.file_size <= LARGEST:
                            with archive.open(info) as stream:
                                yield info.filename, stream
        except (OSError, zipfile.BadZipFile, RuntimeError):
            continue  # told when the file's turn comes in the import


def _read(stream: BinaryIO) -> list[tuple[str, float]]:
    """(workload key, weight) of each task; weights are 1 where they cannot be told."""
    keys: list[str] = []
    numbers: list[float] = []
    arrays: list[bytes] = []
    try:
        for opcode, argument, _ in pickletools.genops(stream):
            if opcode.name == "MARK":
                numbers = []
            elif isinstance(argument, str) and _KEY.fullmatch(argument) and argument not in keys:
                keys.append(argument)
            elif opcode.name in ("BININT", "BININT1", "BININT2", "INT", "LONG1", "BINFLOAT"):
                numbers.append(float(argument))
            elif isinstance(argument, bytes):
                arrays.append(argument)
    except Exception:  # a damaged pickle can make pickletools raise anything
        return []
    if len(numbers) != len(keys):
        fitting = [a for a in arrays if len(a) == 8 * len(keys)]
        numbers = [float(n) for n in struct.unpack(f"<{len(keys)}q", fitting[-1])] if fitting and keys else [1.0] * len(keys)
    if any(not 0 < n < 1e6 for n in numbers):
        numbers = [1.0] * len(keys)
    return list(zip(keys, numbers, strict=True))
