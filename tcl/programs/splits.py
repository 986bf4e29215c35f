"""Who trains on what: splits by task, by network, within task, by platform. Seeded, saved as JSON that any method reads.

    split = split_by_task(dataset.tasks(), seed=0)
    split.save(path)
    part = Split.load(path).parts(labels)          # "train", "valid", "test" or "" for each row
    train = labels[part == "train"]

Near-duplicate workloads (`Task.group`: the same operator and loop extents) are always on one side, so that a test task was not
seen under another name. The valid part is split off the same way as the test part: a checkpoint is chosen on it, never on test.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tcl.errors import UserError
from tcl.files import write_json
from tcl.programs.types import content_id, format_id, parse_id

PARTS = ("train", "valid", "test")
KINDS = ("task", "network", "within-task", "platform")
FRACTIONS = (0.7, 0.1, 0.2)
"""Of train, valid and test. Our choice: with about 100 tasks, 0.2 leaves some 20 to test on."""


@dataclass(frozen=True)
class Split:
    """`sides` gives the part of each task id (kinds "task" and "network") or platform name ("platform"); "within-task" needs
    none: a hash of (seed, program) decides, so that a program keeps its part when the dataset grows.
    """

    kind: str
    seed: int
    fractions: tuple[float, float, float] = FRACTIONS
    sides: dict[int | str, str] = field(default_factory=dict)
    about: dict[str, Any] = field(default_factory=dict)

    def parts(self, rows: pd.DataFrame) -> np.ndarray:
        """The part of each row of `rows` (columns task, program, platform as the kind needs): an object array of shape (rows,)
        of "train", "valid", "test"; "" for a task or platform that the split does not know.
        """
        if self.kind == "within-task":
            u = _unit_hash(rows["program"].to_numpy(np.int64), self.seed)
            return np.array(PARTS, dtype=object)[np.searchsorted(np.cumsum(self.fractions)[:2], u, side="right")]
        column = rows["platform"].astype(str) if self.kind == "platform" else rows["task"]
        codes, values = pd.factorize(column)
        return np.array([self.sides.get(v, "") for v in values.tolist()] + [""], dtype=object)[codes]

    def mask(self, rows: pd.DataFrame, part: str) -> np.ndarray:
        """Boolean array of shape (rows,): which rows are of `part`."""
        return self.parts(rows) == part

    def count(self) -> dict[str, int]:
        """Tasks or platforms in each part (empty for "within-task")."""
        return {part: sum(side == part for side in self.sides.values()) for part in PARTS} if self.sides else {}

    def save(self, path: str | Path) -> None:
        """Write as JSON; task ids as 16 hex digits."""
        grouped = {p: sorted(format_id(k) if isinstance(k, int) else k for k, side in self.sides.items() if side == p) for p in PARTS}
        value = {"format": 1, "kind": self.kind, "seed": self.seed, "fractions": list(self.fractions), "about": self.about}
        value["parts"] = grouped
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_json(Path(path), value)

    @classmethod
    def load(cls, path: str | Path) -> Split:
        try:
            value = json.loads(Path(path).read_text())
            by_name = value["kind"] == "platform"
            sides = {name if by_name else parse_id(name): part for part in PARTS for name in value["parts"][part]}
            if value["format"] != 1 or value["kind"] not in KINDS:
                raise ValueError("another format")
            return cls(value["kind"], int(value["seed"]), tuple(value["fractions"]), sides, value.get("about", {}))
        except OSError as error:
            raise UserError(f"The split {path} cannot be read: {error.strerror}.") from None
        except (ValueError, KeyError, TypeError):
            raise UserError(f"{path} is not a split.", hint="Make one with `tcl data split`.") from None


def split_by_task(tasks: pd.DataFrame, seed: int = 0, fractions: tuple[float, float, float] = FRACTIONS) -> Split:
    """Split groups of near-duplicate tasks at random, each operator for itself, so that every part holds every operator.

    `tasks`: `Dataset.tasks()` (columns task, operator, group). An operator with at least three groups is in all parts whose
    fraction is not zero; with fewer, train gets them first, then test.
    """
    fractions = _checked(fractions)
    rng = np.random.default_rng(seed)
    sides: dict[int | str, str] = {}
    for _, rows in sorted(_by_operator(tasks)):
        groups = rng.permutation(np.unique(rows["group"].to_numpy()))
        side = dict(zip(groups.tolist(), _deal(len(groups), fractions), strict=True))
        sides |= {task: side[group] for task, group in zip(rows["task"].tolist(), rows["group"].tolist(), strict=True)}
    return Split("task", seed, fractions, sides)


def split_by_network(
    tasks: pd.DataFrame, test: Sequence[str] = (), seed: int = 0, fractions: tuple[float, float, float] = FRACTIONS
) -> Split:
    """Hold whole networks out, as TenSet does: a task of a test network, or a near-duplicate of one, is never trained on.

    `test`: names of networks; without them, a share of the networks (`fractions[2]`, at least one) is drawn. A valid share of the
    networks that are left is drawn always; a task that a test network shares with others is a test task. Tasks of no network train.
    """
    fractions = _checked(fractions)
    networks = sorted({name for uses in tasks["networks"] for name in uses})
    if len(networks) < 2:
        raise UserError("A split by network needs tasks of at least two networks.", hint="Split by task instead.")
    unknown = sorted(set(test) - set(networks))
    if unknown:
        raise UserError(f"No task belongs to {', '.join(unknown)}.", hint=f"Networks: {', '.join(networks[:20])}.")
    rng = np.random.default_rng(seed)
    drawn = rng.permutation(networks).tolist()
    held = list(test) or drawn[: max(1, round(fractions[2] * len(networks)))]
    rest = [n for n in drawn if n not in held]
    valid = rest[: max(1, round(fractions[1] * len(networks)))] if fractions[1] and len(rest) > 1 else []
    side: dict[int, str] = {}
    for part, names in (("valid", valid), ("test", held)):  # test last: it wins where networks share a task
        touched = [bool(set(uses) & set(names)) for uses in tasks["networks"]]
        side |= dict.fromkeys(tasks.loc[touched, "group"].tolist(), part)
    sides: dict[int | str, str] = {t: side.get(g, "train") for t, g in zip(tasks["task"].tolist(), tasks["group"].tolist(), strict=True)}
    return Split("network", seed, fractions, sides, {"test_networks": sorted(held), "valid_networks": sorted(valid)})


def split_within_task(seed: int = 0, fractions: tuple[float, float, float] = FRACTIONS) -> Split:
    """Split the programs of every task at random: the easy protocol, in which test tasks were seen in training."""
    return Split("within-task", seed, _checked(fractions))


def split_by_platform(platforms: Sequence[str], test: Sequence[str], valid: Sequence[str] = (), seed: int = 0) -> Split:
    """Train on some platforms, test on others."""
    unknown = sorted((set(test) | set(valid)) - set(platforms))
    if unknown:
        raise UserError(f"The dataset has no platform {', '.join(unknown)} (it has: {', '.join(sorted(platforms))}).")
    if not test or set(test) & set(valid) or not set(platforms) - set(test) - set(valid):
        raise UserError("A split by platform needs at least one platform to test on and another one to train on, each on one side.")
    sides: dict[int | str, str] = {p: "test" if p in test else "valid" if p in valid else "train" for p in platforms}
    return Split("platform", seed, FRACTIONS, sides)


def _deal(n: int, fractions: tuple[float, float, float]) -> list[str]:
    """Parts of `n` shuffled groups."""
    wanted = [round(n * f) for f in fractions]
    for part in (2, 1):
        if fractions[part] and not wanted[part] and n >= (3 if part == 1 else 2):
            wanted[part] = 1
    if not fractions[1]:
        wanted[1] = 0
    test, valid = min(wanted[2], n - (fractions[0] > 0)), wanted[1]
    valid = max(0, min(valid, n - test - (fractions[0] > 0)))
    return ["test"] * test + ["valid"] * valid + ["train"] * (n - test - valid)


def _by_operator(tasks: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    # A group never spans operators (the operator is part of it), except for tasks without extents, which are their own group.
    return [(str(name), rows) for name, rows in tasks.groupby("operator", sort=True)]


def _checked(fractions: Sequence[float]) -> tuple[float, float, float]:
    if len(fractions) != 3 or min(fractions) < 0 or abs(sum(fractions) - 1) > 1e-6 or not fractions[0]:
        raise UserError(f"Fractions of train, valid and test add up to 1 and train is not empty; got {tuple(fractions)}.")
    return float(fractions[0]), float(fractions[1]), float(fractions[2])


def _unit_hash(ids: np.ndarray, seed: int) -> np.ndarray:
    """A number in [0, 1) for each id, fixed by (id, seed): the finaliser of splitmix64."""
    x = ids.astype(np.uint64) ^ np.uint64(content_id("split", str(seed)) & 0xFFFFFFFFFFFFFFFF)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    x ^= x >> np.uint64(31)
    return (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
