"""Random scores: what a cost model must beat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tcl.models.base import CostModel, Examples, Inputs, Trainer


class Random(CostModel):
    """Scores drawn from the seed and the program's tokens: the same program always gets the same score."""

    name = "random"

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed=seed)

    def fit(self, train: Examples, valid: Examples | None, trainer: Trainer) -> dict[str, Any]:
        self.settings["seed"] = trainer.seed
        return {"epochs": 0}

    def predict(self, inputs: Inputs) -> np.ndarray:
        return np.modf(np.abs(np.sin(self._mixed(inputs))) * 43758.5453)[0].astype(np.float32)

    def embed(self, inputs: Inputs) -> np.ndarray:
        mixed = self._mixed(inputs)
        return np.stack([np.sin(mixed), np.cos(mixed)], axis=1).astype(np.float32)

    def parameters(self) -> int:
        return 0

    def _mixed(self, inputs: Inputs) -> np.ndarray:
        shape = inputs.tokens.numbers.shape[1:]
        weights = np.random.default_rng(self.settings["seed"]).normal(size=shape)
        out = np.empty(len(inputs))
        for start in range(0, len(inputs), 8192):
            part = np.asarray(inputs.tokens.numbers[start : start + 8192], dtype=np.float64)
            out[start : start + 8192] = np.einsum("nlp,lp->n", part, weights)
        return out * 1e3

    def _save_weights(self, folder: Path) -> None:
        pass

    def _load_weights(self, folder: Path) -> None:
        pass
