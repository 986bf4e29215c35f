"""The interface of a cost model, and what it reads.

A cost model ranks programs: `predict` gives each a score, higher is faster. Scores of one task on one platform compare with
each other; whether scores of different tasks do depends on how the model was trained.

To add a model: one file beside this one with a subclass of `CostModel` (or of `NeuralModel`, where only the network is new),
its name in `MODELS`, and its name in the parameters of tests/models/test_models.py.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np

from tcl.errors import UserError
from tcl.features.context import PLATFORM_FEATURES, TASK_FEATURES
from tcl.features.flat import flat_of
from tcl.features.tokens import Tokens
from tcl.features.vocabulary import VERSION
from tcl.files import write_json
from tcl.progress import Progress

MODELS = {
    "mamba": "tcl.models.mamba:Mamba",
    "tlp": "tcl.models.tlp:TLP",
    "hardware_attention": "tcl.models.hardware_attention:HardwareAttention",
    "lstm": "tcl.models.lstm:LSTM",
    "mlp": "tcl.models.mlp:MLP",
    "xgb": "tcl.models.xgb:XGB",
    "random": "tcl.models.random:Random",
}
"""Name -> where its class is."""


@dataclass
class Inputs:
    """n programs as a model reads them.

    tokens: of the n programs. task: float32 (tasks, T), one row a task; task_of: int (n,), each program's row there. platform:
    float32 (platforms, Q) and platform_of: int (n,) likewise; all zeros where the platform's hardware is not known.
    """

    tokens: Tokens
    task: np.ndarray
    task_of: np.ndarray
    platform: np.ndarray
    platform_of: np.ndarray

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def flat(self) -> np.ndarray:
        """float32 (n, D): `flat_of` the tokens and the task's numbers, for models that read no sequence."""
        return np.concatenate([flat_of(self.tokens), self.task[self.task_of]], axis=1)

    def take(self, rows: np.ndarray) -> Inputs:
        """The programs at `rows` (int (m,)), in memory."""
        taken = Inputs(self.tokens.take(rows), self.task, self.task_of[rows], self.platform, self.platform_of[rows])
        if "flat" in self.__dict__:
            taken.__dict__["flat"] = self.flat[rows]
        return taken

    @classmethod
    def plain(cls, tokens: Tokens, task: np.ndarray | None = None, platform: np.ndarray | None = None) -> Inputs:
        """All programs of one task (float32 (T,)) and one platform (float32 (Q,)), as a search asks for them."""
        n = len(tokens)
        task = np.zeros(len(TASK_FEATURES), dtype=np.float32) if task is None else task
        platform = np.zeros(len(PLATFORM_FEATURES), dtype=np.float32) if platform is None else platform
        return cls(tokens, task[None], np.zeros(n, dtype=np.int32), platform[None], np.zeros(n, dtype=np.int32))


class Truth(Protocol):
    def evaluate(self, scores: np.ndarray) -> dict[str, float]:
        """top1, top5, top1_mean, top5_mean, pairwise, spearman of scores (n,), higher is faster; NaN where not defined."""
        ...


@dataclass
class Examples:
    """Measured programs to learn from or to be scored on.

    inputs: n programs (a program measured on two platforms stands there twice). label: float32 (n,), in [0, 1], 0 for a failure.
    assignment: int (n,), one number a (task, platform). program, task: int64 (n,) ids. truth: scores a ranking of the n programs
    (`tcl.training.metrics.Assignments`).
    """

    inputs: Inputs
    label: np.ndarray
    assignment: np.ndarray
    program: np.ndarray
    task: np.ndarray
    truth: Truth

    def __len__(self) -> int:
        return len(self.label)


class Trainer(Protocol):
    """How networks are trained (`tcl.training.loop.Trainer`). Other models ask it for its seed and its progress."""

    seed: int
    progress: Progress

    def train(self, model: Any, train: Examples, valid: Examples | None) -> dict[str, Any]: ...


class CostModel(ABC):
    """A learned (or made-up) order of programs. `settings` are plain JSON: they and the weights are all that is saved."""

    name: ClassVar[str]

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self.history: list[dict[str, Any]] = []

    @abstractmethod
    def fit(self, train: Examples, valid: Examples | None, trainer: Trainer) -> dict[str, Any]:
        """Learn from `train`; choose when to stop by `valid` (None: train for all epochs). Returns what happened, as plain JSON.

        Raises UserError where there is nothing to learn from (no program, or no assignment with two different labels).
        """

    @abstractmethod
    def predict(self, inputs: Inputs) -> np.ndarray:
        """float32 (n,): scores, higher is faster; finite for every program."""

    @abstractmethod
    def embed(self, inputs: Inputs) -> np.ndarray:
        """float32 (n, E): the vectors that the score is computed from, for maps and samplers."""

    @abstractmethod
    def parameters(self) -> int:
        """How many numbers it learns."""

    @abstractmethod
    def _save_weights(self, folder: Path) -> None: ...

    @abstractmethod
    def _load_weights(self, folder: Path) -> None: ...

    def save(self, folder: str | Path, about: dict[str, Any] | None = None) -> None:
        """Write the model to a folder: `model.json` (settings, and `about`: plain JSON, e.g. what it was trained on) and weights."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self._save_weights(folder)
        card = {"model": self.name, "settings": self.settings, "parameters": self.parameters(), "features": VERSION, "about": about or {}}
        write_json(folder / "model.json", card)


def make(name: str, **settings: Any) -> CostModel:
    """A new model, not trained. Raises UserError for a name or a setting that is not known."""
    if name not in MODELS:
        raise UserError(f"There is no cost model {name!r}.", hint=f"Choose one of: {', '.join(MODELS)}.")
    module, _, attribute = MODELS[name].partition(":")
    try:
        return getattr(import_module(module), attribute)(**settings)
    except TypeError as error:
        raise UserError(f"The model {name} does not take these settings: {error}.") from None


def load(folder: str | Path) -> CostModel:
    """The model that `save` wrote to `folder`. Raises UserError where there is none, or one of another version."""
    folder = Path(folder)
    card = read_card(folder)
    if card.get("features") != VERSION:
        raise UserError(f"{folder} was trained on other features than this version reads.", hint="Train it again with `tcl train`.")
    model = make(card["model"], **card["settings"])
    try:
        model._load_weights(folder)
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise UserError(f"The weights in {folder} cannot be read: {error}.") from None
    return model


def read_card(folder: str | Path) -> dict[str, Any]:
    """`model.json` of a saved model: model, settings, parameters, features (version) and about."""
    path = Path(folder) / "model.json"
    try:
        card = json.loads(path.read_text())
        if not isinstance(card, dict) or not {"model", "settings"} <= card.keys():
            raise ValueError("it has no model and settings")
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{folder} is not a saved model: it has no model.json.", hint="Make one with `tcl train`.") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    return card


def choice_score(found: dict[str, float]) -> float:
    """What the best epoch, or number of trees, is chosen by, from `Truth.evaluate` of the validation part: a few tasks' top-1 is
    noisy, so the other metrics have a say. 0 where nothing can be ranked."""
    if not np.isfinite(found["pairwise"]):
        return 0.0
    return float(np.nanmean([found["top1_mean"], found["top5_mean"], found["pairwise"]]))


def checked(train: Examples) -> None:
    """Raise UserError where nothing can be learnt from `train`."""
    if not len(train):
        raise UserError("There is no measured program to train on.", hint="Measure some, or choose another split or fraction.")
    labels = np.asarray(train.label, dtype=np.float64)
    if not np.isfinite(labels).all():
        raise UserError("Some labels are not numbers.", hint="Run `tcl data validate` on the dataset.")
    count = int(train.assignment.max()) + 1
    high, low = np.full(count, -np.inf), np.full(count, np.inf)
    np.maximum.at(high, train.assignment, labels)
    np.minimum.at(low, train.assignment, labels)
    if not (high > low).any():
        raise UserError(
            "No task has two programs of different latency to train on: every one has a single program, or all of its programs failed.",
            hint="Measure more programs of a task, or learn from a larger share of them.",
        )
