"""Where lines come from: files, folders, globs, .gz/.bz2/.xz, .zip and .tar, told apart by their first bytes.

Everything streams. Lines have a greatest length, archives a greatest growth, and a member whose path leads out of the archive is
refused: a log from the net cannot fill memory or disk, and nothing is ever unpacked to disk.
"""

from __future__ import annotations

import bz2
import codecs
import glob
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from tcl.errors import UserError

LONGEST_LINE = 32 << 20
"""Bytes. The longest real lines are MetaSchedule workloads, a few hundred kB."""
GREATEST_GROWTH = 200
"""An archive member may become this many times larger (search logs: 10 to 40 times)..."""
ALWAYS_ALLOWED = 64 << 20
"""... or this many bytes, whichever is more."""

_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, RuntimeError, OSError)


class Damaged(Exception):
    """A file ended before its time, or was not what its first bytes promise. The text is the reason."""


@dataclass(frozen=True)
class Source:
    """A file a user named, directly or through a folder or a glob. `shown` is the path as messages show it."""

    path: Path
    shown: str
    size: int


@dataclass
class LogFile:
    """One text file of lines, or one member of an archive. Iterate `lines()` once, before the next log file is asked for."""

    shown: str
    folder: str  # what a mapping of folders to platforms, and the pairing of workload and record files, look at
    stream: BinaryIO | None
    problem: str = ""  # why it cannot be read at all

    def lines(self) -> Iterator[tuple[int, bytes | None]]:
        """(line number from 1, line without its end); None for a line longer than `LONGEST_LINE`. Raises `Damaged`."""
        if self.problem:
            raise Damaged(self.problem)
        try:
            yield from _lines(self.stream)
        except _DAMAGED as error:
            raise Damaged(_reason(error)) from None


def find_sources(paths: Sequence[str | Path]) -> list[Source]:
    """The files that `paths` (files, folders, globs) name, sorted, each once. Hidden files in folders are left out."""
    found: dict[Path, Source] = {}
    for given in map(str, paths):
        path = Path(given).expanduser()
        matches = [path] if path.exists() else [Path(p) for p in sorted(glob.glob(str(path), recursive=True))]  # noqa: PTH207
        if not matches:
            raise UserError(f"{given} does not exist and matches no file.")
        for match in matches:
            inner = sorted(p for p in match.rglob("*") if p.is_file()) if match.is_dir() else [match]
            for file in inner:
                hidden = match.is_dir() and any(part.startswith(".") for part in file.relative_to(match).parts)
                if not hidden and not file.is_file():
                    raise UserError(f"{file} is not a file.", hint="Name files, folders or archives of logs.")
                if not hidden:
                    found.setdefault(file.resolve(), Source(file, str(file), file.stat().st_size))
    if not found:
        raise UserError(f"There is no file in {', '.join(map(str, paths))}.")
    return list(found.values())


def open_source(source: Source) -> Iterator[tuple[LogFile, BinaryIO]]:
    """The log files in one source, with the raw file (whose `tell()` says how far reading got)."""
    try:
        with source.path.open("rb") as raw:
            for log in _unpack(raw, source.shown, str(source.path.parent), depth=0):
                yield log, raw
    except _DAMAGED as error:
        yield LogFile(source.shown, str(source.path.parent), None, _reason(error)), io.BytesIO()


def _unpack(raw: BinaryIO, shown: str, folder: str, depth: int) -> Iterator[LogFile]:
    head = raw.read(512)
    raw.seek(0)
    stream: BinaryIO = raw
    for magic, opener in ((b"\x1f\x8b", gzip.GzipFile), (b"BZh", bz2.BZ2File), (b"\xfd7zXZ\x00", lzma.LZMAFile)):
        if head.startswith(magic):
            inner = opener(raw, "rb") if opener is not gzip.GzipFile else gzip.GzipFile(fileobj=raw, mode="rb")
            stream = io.BufferedReader(_Guarded(inner, raw.tell, _size(raw)), 1 << 18)
            head = _peek(stream, 512)
    if head.startswith(b"PK\x03\x04") or head.startswith(b"PK\x05\x06"):
        if depth or stream is not raw:
            yield LogFile(shown, folder, None, "an archive inside an archive")
        else:
            yield from _zip(raw, shown, folder)
    elif head[257:262] == b"ustar":
        if depth:
            yield LogFile(shown, folder, None, "an archive inside an archive")
        else:
            yield from _tar(stream, shown, folder)
    elif head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        yield LogFile(shown, folder, None, "a Python pickle, which could run code when read: left alone")
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        yield LogFile(shown, folder, _Recoded(stream))
    else:
        yield LogFile(shown, folder, stream)


def _zip(raw: BinaryIO, shown: str, folder: str) -> Iterator[LogFile]:
    with zipfile.ZipFile(raw) as archive:
        for info in archive.infolist():
            name = info.filename
            if not name:  # a damaged list: zipfile itself stumbles over such an entry
                yield LogFile(shown, folder, None, "an entry without a name")
                continue
            if info.is_dir() or _noise(name):
                continue
            label, place = f"{shown}!{name}", str(PurePosixPath(folder, PurePosixPath(name).parent))
            if _leaves(name):
                yield LogFile(label, folder, None, "a path that leads out of the archive")
            elif info.flag_bits & 1:
                yield LogFile(label, place, None, "encrypted")
            elif info.file_size > max(ALWAYS_ALLOWED, GREATEST_GROWTH * info.compress_size):
                yield LogFile(label, place, None, "an archive that would grow beyond measure")
            else:
                with archive.open(info) as member:
                    guarded = io.BufferedReader(_Guarded(member, lambda n=info.compress_size: n, info.compress_size), 1 << 18)
                    if _peek(guarded, 2) == b"\x1f\x8b":
                        guarded = io.BufferedReader(_Guarded(gzip.GzipFile(fileobj=guarded), lambda n=info.file_size: n, info.file_size))
                    yield from _inner(guarded, label, place)


def _tar(stream: BinaryIO, shown: str, folder: str) -> Iterator[LogFile]:
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for info in archive:
            if not info.isfile() or _noise(info.name):
                continue
            label, place = f"{shown}!{info.name}", str(PurePosixPath(folder, PurePosixPath(info.name).parent))
            if _leaves(info.name):
                yield LogFile(label, folder, None, "a path that leads out of the archive")
                continue
            member = io.BufferedReader(archive.extractfile(info), 1 << 18)
            if _peek(member, 2) == b"\x1f\x8b":
                member = io.BufferedReader(_Guarded(gzip.GzipFile(fileobj=member), lambda n=info.size: n, info.size))
            yield from _inner(member, label, place)


def _inner(stream: io.BufferedReader, shown: str, folder: str) -> Iterator[LogFile]:
    head = _peek(stream, 512)
    if head.startswith(b"PK\x03\x04") or head[257:262] == b"ustar":
        yield LogFile(shown, folder, None, "an archive inside an archive")
    elif head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        yield LogFile(shown, folder, None, "a Python pickle, which could run code when read: left alone")
    elif head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        yield LogFile(shown, folder, _Recoded(stream))
    else:
        yield LogFile(shown, folder, stream)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | None]]:
    number = 0
    while True:
        line = stream.readline(LONGEST_LINE)
        if not line:
            return
        number += 1
        if len(line) == LONGEST_LINE and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(LONGEST_LINE)
            yield number, None
            continue
        if number == 1 and line.startswith(codecs.BOM_UTF8):
            line = line[3:]
        yield number, line


class _Guarded(io.RawIOBase):
    """A decompressed stream that stops when it grows beyond measure."""

    def __init__(self, inner: BinaryIO, consumed, size: int) -> None:
        self._inner, self._size, self._produced = inner, size, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        data = self._inner.read(len(buffer))
        self._produced += len(data)
        if self._produced > max(ALWAYS_ALLOWED, GREATEST_GROWTH * self._size):
            raise OSError("an archive that would grow beyond measure")
        buffer[: len(data)] = data
        return len(data)


class _Recoded:
    """A UTF-16 stream as UTF-8 lines."""

    def __init__(self, inner: BinaryIO) -> None:
        self._text = io.TextIOWrapper(inner, encoding="utf-16", errors="replace", newline="\n")

    def readline(self, limit: int) -> bytes:
        return self._text.readline(limit).encode()


def _peek(stream: io.BufferedReader, n: int) -> bytes:
    return stream.peek(n)[:n]


def _size(raw: BinaryIO) -> int:
    position = raw.tell()
    size = raw.seek(0, io.SEEK_END)
    raw.seek(position)
    return size


def _leaves(name: str) -> bool:
    name = name.replace("\\", "/")
    return name.startswith("/") or ".." in PurePosixPath(name).parts or (len(name) > 1 and name[1] == ":")


def _noise(name: str) -> bool:
    return any(part == "__MACOSX" or (part.startswith(".") and part not in (".", "..")) for part in PurePosixPath(name).parts)


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.args and error.args[0] == "an archive that would grow beyond measure":
        return error.args[0]
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read: {error.strerror}"
    return "a compressed file that is cut off or damaged"
