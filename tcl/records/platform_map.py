"""Which folder's logs were measured on which platform. The user says it; nothing is read from a log's target string."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tcl.errors import UserError
from tcl.programs.types import Platform


@dataclass(frozen=True)
class NamedPlatform:
    """A platform as the user names it. `kind` is "cpu", "gpu" or "": then the schedules tell, by whether they bind GPU threads."""

    name: str
    kind: str = ""
    description: str = ""

    def __post_init__(self) -> None:
        self.platform(gpu=False)  # raises for a bad name or kind

    def platform(self, gpu: bool) -> Platform:
        return Platform(self.name, self.kind or ("gpu" if gpu else "cpu"), self.description)


@dataclass(frozen=True)
class PlatformMap:
    """Folder (a sequence of path parts, empty for all) -> platform. The longest folder that occurs in a file's path wins."""

    entries: tuple[tuple[tuple[str, ...], NamedPlatform], ...]

    @classmethod
    def single(cls, platform: NamedPlatform) -> PlatformMap:
        return cls((((), platform),))

    @classmethod
    def read(cls, path: str | Path, kind: str = "") -> PlatformMap:
        """A mapping file: JSON `{"v100": "nvidia-v100", "k80": {"name": "nvidia-k80", "kind": "gpu"}}`, or lines `v100/ -> nvidia-v100`."""
        path = Path(path)
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"The platform map {path} cannot be read: {error}.") from None
        pairs = _json_pairs(text, path) if text.lstrip().startswith("{") else _line_pairs(text, path)
        if not pairs:
            raise UserError(f"The platform map {path} has no entry.", hint="Write lines such as `v100/ -> nvidia-v100`.")
        return cls(tuple((_parts(folder), _platform(value, kind, path)) for folder, value in pairs))

    def find(self, folder: str, shown: str = "") -> NamedPlatform | None:
        """The platform of a file in `folder` (or, for an entry that names the file itself, of the file `shown`)."""
        best: tuple[int, NamedPlatform] | None = None
        for parts, platform in self.entries:
            for path in (folder, shown.replace("!", "/")):
                if (best is None or len(parts) > best[0]) and _occurs(parts, PurePosixPath(path).parts):
                    best = (len(parts), platform)
        return best[1] if best else None

    def check(self, shown: Sequence[str]) -> None:
        """Raise when a plain file has no platform: better before an import than after. Archives are looked at as they are read, and
        pickles hold no records.
        """
        plain = [s for s in shown if not s.endswith((".zip", ".tar", ".tgz", ".tar.gz", ".pkl"))]
        missing = [s for s in plain if self.find(str(PurePosixPath(s).parent), s) is None]
        if missing:
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise UserError(f"The platform map names no folder of {', '.join(missing[:3])}{more}.", hint="Add a line for each folder.")


def _json_pairs(text: str, path: Path) -> list[tuple[str, object]]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise UserError(f"The platform map {path} is not valid JSON: {error}.") from None
    return list(value.items())


def _line_pairs(text: str, path: Path) -> list[tuple[str, object]]:
    pairs: list[tuple[str, object]] = []
    for number, raw in enumerate(text.splitlines(), 1):
        line = raw.split("#")[0].strip()
        if not line:
            continue
        arrow = next((a for a in ("->", "=", ":", "\t") if a in line), None)
        if arrow is None:
            raise UserError(f"{path}, line {number}: {line!r} is not `folder -> platform`.")
        folder, name = line.split(arrow, 1)
        pairs.append((folder.strip(), name.strip()))
    return pairs


def _platform(value: object, kind: str, path: Path) -> NamedPlatform:
    if isinstance(value, str):
        return NamedPlatform(value, kind)
    if isinstance(value, dict) and isinstance(value.get("name"), str):
        return NamedPlatform(value["name"], str(value.get("kind", kind)), str(value.get("description", "")))
    raise UserError(f"The platform map {path} gives {value!r} for a platform.", hint="Give a name, or an object with a name and a kind.")


def _parts(folder: str) -> tuple[str, ...]:
    return PurePosixPath(folder.strip().removesuffix("/**").removesuffix("/*").rstrip("/")).parts


def _occurs(parts: tuple[str, ...], path: tuple[str, ...]) -> bool:
    """Whether `parts` follow each other somewhere in `path`."""
    return any(path[i : i + len(parts)] == parts for i in range(len(path) - len(parts) + 1))
