"""Boosted trees (xgboost), the cost model that TVM ships (arXiv 1805.08166, section 5.2), on the flat features."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tcl.errors import UserError
from tcl.models.base import CostModel, Examples, Inputs, Trainer, checked, choice_score
from tcl.progress import Stopped


class XGB(CostModel):
    """`objective`: "regression" of the label (as TVM trains it) or "rank" (xgboost's pairwise LambdaMART per assignment)."""

    name = "xgb"

    def __init__(
        self, trees: int = 300, depth: int = 8, learning_rate: float = 0.1, objective: str = "regression", patience: int = 30
    ) -> None:
        super().__init__(trees=trees, depth=depth, learning_rate=learning_rate, objective=objective, patience=patience)
        if objective not in ("regression", "rank"):
            raise UserError(f"xgb is trained by regression or rank, not {objective!r}.")
        self.booster: Any = None

    def fit(self, train: Examples, valid: Examples | None, trainer: Trainer) -> dict[str, Any]:
        import xgboost

        checked(train)
        settings = self.settings
        rank = settings["objective"] == "rank"
        matrix = self._matrix(train, rank)
        watched = valid if valid is not None and len(valid) else None
        callbacks = [_Watch(trainer, settings["trees"])]
        if watched is not None:
            # The number of trees is chosen as a network's epoch is: the error of the labels says little about ranks.
            callbacks.append(
                xgboost.callback.EarlyStopping(rounds=settings["patience"], metric_name="score", maximize=True, save_best=True)
            )
        self.booster = xgboost.train(
            {
                "objective": "rank:pairwise" if rank else "reg:squarederror", "max_depth": settings["depth"],
                "eta": settings["learning_rate"],
                "subsample": 0.8, "colsample_bytree": 0.8, "min_child_weight": 2, "seed": trainer.seed, "nthread": 2,
                "disable_default_eval_metric": True, "tree_method": "hist",
            },
            matrix,
            settings["trees"],
            evals=[(self._matrix(watched, False), "valid")] if watched is not None else [],
            custom_metric=lambda scores, _: ("score", choice_score(watched.truth.evaluate(scores)) if watched is not None else 0.0),
            verbose_eval=False,
            callbacks=callbacks,
        )  # fmt: skip
        return {"epochs": self.booster.num_boosted_rounds(), "stopped": callbacks[0].stopped}

    def predict(self, inputs: Inputs) -> np.ndarray:
        return np.asarray(self._trained().inplace_predict(inputs.flat), dtype=np.float32) if len(inputs) else np.zeros(0, np.float32)

    def embed(self, inputs: Inputs) -> np.ndarray:
        """What each feature contributes to the score (Shapley values): (n, D)."""
        import xgboost

        if not len(inputs):
            return np.zeros((0, inputs.flat.shape[1]), dtype=np.float32)
        return self._trained().predict(xgboost.DMatrix(inputs.flat), pred_contribs=True, approx_contribs=True)[:, :-1].astype(np.float32)

    def parameters(self) -> int:
        """Leaves: each is one learnt number."""
        if self.booster is None:
            return 0
        return sum(tree.count("leaf=") for tree in self.booster.get_dump())

    def _trained(self) -> Any:
        if self.booster is None:
            raise UserError("This xgb model has not been trained.")
        return self.booster

    @staticmethod
    def _matrix(examples: Examples, rank: bool) -> Any:
        import xgboost

        if not rank:
            return xgboost.DMatrix(examples.inputs.flat, examples.label)
        order = np.argsort(examples.assignment, kind="stable")  # xgboost wants groups together
        return xgboost.DMatrix(examples.inputs.flat[order], np.round(examples.label[order] * 31), qid=examples.assignment[order])

    def _save_weights(self, folder: Path) -> None:
        self._trained().save_model(folder / "weights.ubj")

    def _load_weights(self, folder: Path) -> None:
        import xgboost

        self.booster = xgboost.Booster()
        self.booster.load_model(folder / "weights.ubj")


def _Watch(trainer: Trainer, trees: int) -> Any:  # a class made late: xgboost is imported only when it is used
    import xgboost

    class Watch(xgboost.callback.TrainingCallback):
        stopped = False

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            trainer.progress.step(epoch + 1, trees, "trees")
            try:
                trainer.progress.check()
            except Stopped:
                self.stopped = True  # the trees so far are a model
            return self.stopped

    return Watch()
