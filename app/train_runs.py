"""Trainings as the Train page sees them: a job while it runs, a model's folder when it has ended, often both."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from tcl.errors import UserError
from tcl.jobs.store import ALIVE, DONE, Job, all_jobs
from tcl.models.base import read_card
from tcl.training import outcome
from tcl.views.training import curves
from tcl.workspace import ASSETS, workspace

SHOWN = 100
"""Trainings listed at most, the newest."""
HISTORY = "history.json"


@dataclass(frozen=True)
class Run:
    """One training. name: that of its model's folder, unique in a list. job: what trains or trained it; None for one from a terminal
    or shipped with the project."""

    name: str
    folder: Path
    job: Job | None

    @cached_property
    def state(self) -> str:
        return self.job.state if self.job else DONE

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @cached_property
    def card(self) -> dict[str, Any]:
        """model.json; empty before the training has ended. Of an earlier training into the same folder while this one runs: not told."""
        if self.alive:
            return {}
        try:
            return read_card(self.folder)
        except UserError:
            return {}

    @cached_property
    def scores(self) -> dict[str, Any]:
        """What `tcl train --json` printed; empty before the end."""
        if self.alive:
            return {}
        return (self.job.result if self.job else None) or outcome.read_json(self.folder, outcome.SCORES) or {}

    @property
    def argv(self) -> list[str]:
        return list(self.job.about.get("argv", [])) if self.job else []

    @property
    def model(self) -> str:
        return str(self.card.get("model") or option(self.argv, "--model", "mamba"))

    @property
    def dataset(self) -> Path | None:
        """The dataset it learns from; None where the model's card does not say."""
        about = self.card.get("about") or {}
        named = about.get("dataset") or next(iter(self.argv[1:2]), None)
        return (self.job.about.get("cwd", ".") if self.job else ".") / Path(named) if named else None

    @property
    def loss(self) -> str:
        """The name of its loss; empty where it has none (trees)."""
        if self.model in ("xgb", "random"):
            return ""
        return str((self.card.get("about") or {}).get("loss") or option(self.argv, "--loss", "the default"))

    @cached_property
    def curves(self) -> pd.DataFrame:
        """`tcl.views.training.curves`: live from the job's events, else from the model's folder."""
        events: list[dict[str, Any]] = []
        if self.job is None or "--resume" in self.argv:  # a resumed training tells only the epochs after the resumption
            events += outcome.read_json(self.folder, HISTORY) or []
            events += (outcome.read_json(self.folder / "checkpoint", "checkpoint.json") or {}).get("history", [])
        if self.job is not None:
            events += self.job.events("epoch")
        return curves(events)

    @property
    def stamp(self) -> str:
        """Changes when the files of the folder do: the key of what is cached from them."""
        try:
            return str((self.folder / outcome.SCORES).stat().st_mtime_ns)
        except OSError:
            return ""

    @property
    def can_continue(self) -> bool:
        """Whether it was broken off with a checkpoint to go on from."""
        return self.job is not None and not self.alive and self.state != DONE and (self.folder / "checkpoint" / "checkpoint.json").exists()

    def row(self) -> dict[str, Any]:
        """What the table of runs shows."""
        result, latest = self.scores, (self.job.progress["latest"].get("epoch", {}) if self.job else {})
        epochs = result.get("epochs") or latest.get("epoch")
        return {
            "run": self.name, "model": self.model, "state": self.state,
            **{m: result.get(m) for m in ("top1", "top5", "pairwise", "spearman")},
            "epochs": epochs, "per epoch": result.get("seconds_per_epoch_s"), "seconds": result.get("seconds"),
            "trained on": result.get("train_programs"), "parameters": result.get("parameters"),
        }  # fmt: skip


def all_runs() -> list[Run]:
    """Newest first: training jobs, models in the workspace that `tcl train` wrote, models shipped with the project. One folder trained
    twice is one run, the last."""
    runs: list[Run] = []
    seen: set[Path] = set()
    names: set[str] = set()

    def add(folder: Path, job: Job | None) -> None:
        folder = folder.resolve()
        if folder in seen:
            return
        seen.add(folder)
        name, number = folder.name, 2
        while name in names:
            name, number = f"{folder.name} ({number})", number + 1
        names.add(name)
        runs.append(Run(name, folder, job))

    for job in all_jobs():
        if job.kind == "train":
            argv = job.about.get("argv", [])
            add(Path(job.about.get("cwd", ".")) / option(argv, "--out", job.id), job)
    folders = [p.parent for root in (workspace(), ASSETS) for p in root.glob(f"models/*/{HISTORY}")]
    for folder in sorted(folders, key=lambda f: -(f / HISTORY).stat().st_mtime):
        if (folder / "model.json").exists():
            add(folder, None)
    return runs[:SHOWN]


def option(argv: list[str], name: str, default: str = "") -> str:
    """The value that follows `name` on a command line."""
    return argv[argv.index(name) + 1] if name in argv[:-1] else default


def free_names(wanted: list[str]) -> list[str]:
    """Each as it is, or with a number behind it where the workspace has such a model, or a training that makes one."""
    root = (workspace() / "models").resolve()
    taken = {run.folder.name for run in all_runs() if run.folder.parent == root} | {p.name for p in root.glob("*")}
    found = []
    for name in wanted:
        free, number = name, 2
        while free in taken:
            free, number = f"{name}-{number}", number + 1
        taken.add(free)
        found.append(free)
    return found
