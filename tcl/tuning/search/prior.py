"""What a search knows before anything is measured: a saved cost model, or a knowledge base, which holds one a platform.

    prior = Prior.of("models/kb", platform, shared)
    scores = prior.scores(tokens, task_features, prior.start)

The voices of a knowledge base are its platforms. Which of them speaks best for this platform only measurements can tell, task
by task (`best_voice`): our reconstruction of "use what earlier platforms taught".
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.programs.types import Platform

if TYPE_CHECKING:
    from tcl.features.tokenizer import Tokens
    from tcl.models.base import CostModel

BETTER = 0.05
"""Another voice must rank the measured programs better by so much (Spearman's rho) before it takes over."""


@dataclass
class Prior:
    """`voices`: name -> model; one called "" where the folder holds a single model. `start`: the voice to listen to at first."""

    voices: dict[str, CostModel]
    start: str
    platform: np.ndarray | None

    @classmethod
    def of(cls, folder: str, platform: Platform | None, shared: dict[str, Any]) -> Prior:
        """The prior in a folder that `tcl train` or `tcl distill` wrote; read once for all searches that have `shared` in common.

        Raises:
            UserError: no saved model, or one of another version.
        """
        key = ("prior", str(folder))
        if key not in shared:
            shared[key] = cls._read(folder, platform)
        return shared[key]

    @classmethod
    def _read(cls, folder: str, platform: Platform | None) -> Prior:
        from tcl.continual.knowledge_base import KnowledgeBase, exists
        from tcl.features.context import platform_features
        from tcl.models.base import load, read_card

        features = platform_features([platform])[0] if platform is not None else None
        if not exists(Path(folder)):
            return cls({"": load(folder)}, "", features)
        base = KnowledgeBase.load(folder)
        voices: dict[str, CostModel] = {name: base.model(name) for name in base.platforms}
        named = read_card(folder).get("about", {}).get("platform", "")
        here = platform.name if platform is not None else ""
        start = next((name for name in (here, named) if name in voices), list(voices)[-1])
        return cls(voices, start, features)

    def scores(self, tokens: Tokens, task: np.ndarray, voice: str) -> np.ndarray:
        """float32 (n,): what a voice says of programs of one task (its features, float32 (T,)); higher is faster."""
        from tcl.models.base import Inputs

        with _one_thread():
            return self.voices[voice].predict(Inputs.plain(tokens, task, self.platform))

    def all_scores(self, tokens: Tokens, task: np.ndarray) -> np.ndarray:
        """float32 (n, voices)."""
        return np.stack([self.scores(tokens, task, voice) for voice in self.voices], axis=1)

    def best_voice(self, scores: np.ndarray, goal: np.ndarray, current: str) -> str:
        """The voice whose ranking of measured programs (scores (n, voices), goal (n,), higher is faster) is best; `current` unless
        another one is clearly better."""
        names = list(self.voices)
        if len(names) == 1:
            return names[0]
        rho = {name: _spearman(scores[:, i], goal) for i, name in enumerate(names)}
        best = max(rho, key=lambda name: rho[name])
        return best if rho[best] > rho[current] + BETTER else current


@contextmanager
def _one_thread() -> Iterator[None]:
    """Torch on one thread: on a batch's few programs a second one gains nothing, and where the core it waits for is busy (a worker that
    starts), OpenMP's threads spin for half a second."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's rho; 0 where one of both is constant."""
    from scipy.stats import rankdata

    x, y = rankdata(a), rankdata(b)
    return float(np.corrcoef(x, y)[0, 1]) if np.ptp(x) and np.ptp(y) else 0.0
