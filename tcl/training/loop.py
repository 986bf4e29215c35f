"""Training a network: epochs over lists of programs, early stopping on a validation part, checkpoints that resume exactly.

On GPUs `torchrun --nproc-per-node N -m tcl.cli train …` spreads the lists of each step over N processes (DDP), and `amp` computes
in bfloat16. All randomness of an epoch comes from (seed, epoch), so a resumed run gives the numbers of one that never stopped.
"""

from __future__ import annotations

import json
import math
import os
import time
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tcl.errors import UserError
from tcl.files import load_tensors, write_json
from tcl.machine import busy
from tcl.models.base import Examples, checked, choice_score
from tcl.models.neural import Batch, NeuralModel, Standardise
from tcl.progress import Progress, Stopped
from tcl.training.losses import across, loss_named


@dataclass
class Trainer:
    """How to train. The defaults are what `tcl bench models` chose on validation parts.

    epochs, patience: at most so many; stop when the validation score has not risen for so many. lists, list_size: a step sees
    `lists` lists of at most `list_size` programs of one assignment each. loss: see `tcl.training.losses`; `compare_across`
    makes a step's lists one. learning_rate: None takes the model's own. average: weights are averaged over steps with this decay
    (0: not), which makes the choice of the single best program less of a gamble. checkpoint: a folder to resume from and save to
    after each epoch. device: "auto", "cpu", "cuda".
    """

    seed: int = 0
    epochs: int = 20
    patience: int = 10
    lists: int = 4
    list_size: int = 32
    learning_rate: float | None = None
    weight_decay: float = 0.1
    loss: str = "pairwise"
    compare_across: bool = False
    clip: float = 1.0
    average: float = 0.99
    device: str = "auto"
    amp: bool = False
    checkpoint: Path | None = None
    progress: Progress = field(default_factory=Progress)

    def train(self, model: NeuralModel, train: Examples, valid: Examples | None) -> dict[str, Any]:
        """Train `model` in place and leave it with its best weights. Returns epochs, seconds, seconds_per_epoch_s, best, stopped."""
        checked(train)
        with _processes() as (rank, world):
            return _Run(self, model, train, valid if valid is not None and len(valid) else None, rank, world).run()


class Scored(nn.Module):
    """Network and head as one module: what DDP wraps."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, batch: Batch) -> torch.Tensor:
        return self.network.head(self.network(batch)).squeeze(-1)


class _Run:
    def __init__(self, how: Trainer, model: NeuralModel, train: Examples, valid: Examples | None, rank: int, world: int) -> None:
        self.how, self.model, self.train_set, self.valid, self.rank, self.world = how, model, train, valid, rank, world
        for part in model.network.modules():
            if isinstance(part, Standardise):
                part.fit(train.inputs.flat)
        model.to(_device(how.device, rank))
        self.rate = how.learning_rate or model.learning_rate
        self.module: nn.Module = Scored(model.network)
        if world > 1:
            self.module = nn.parallel.DistributedDataParallel(self.module, find_unused_parameters=True)
        loss = loss_named(how.loss)
        self.loss = across(loss) if how.compare_across else loss
        decayed = [p for p in model.network.parameters() if p.ndim >= 2]
        others = [p for p in model.network.parameters() if p.ndim < 2]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": how.weight_decay}, {"params": others, "weight_decay": 0.0}], lr=self.rate, fused=True
        )
        self.of = _rows_by_assignment(train)
        self.history: list[dict[str, Any]] = []
        self.best = -math.inf
        self.best_epoch = -1
        self.best_weights = _copy(model.network)
        self.average = _copy(model.network)
        self.floats = [k for k, v in self.average.items() if v.dtype.is_floating_point]
        self.updates = 0
        self.seconds = 0.0

    def run(self) -> dict[str, Any]:
        stopped = False
        start = self._resume()
        try:
            for epoch in range(start, self.how.epochs):
                if self.valid is not None and epoch - self.best_epoch > self.how.patience:
                    break
                self.how.progress.check()
                self._epoch(epoch)
                self._save(epoch + 1)
        except Stopped:
            stopped = True
        if self.history:
            self.model.network.load_state_dict(self.best_weights)
        self.model.history = self.history
        self.model.to("cpu")
        epochs = len(self.history)
        return {
            "epochs": epochs, "best_epoch": self.best_epoch + 1, "seconds": self.seconds,
            "seconds_per_epoch_s": self.seconds / max(epochs, 1),
            "valid": self.best if self.valid is not None and epochs else None, "stopped": stopped, "history": self.history,
        }  # fmt: skip

    def _epoch(self, epoch: int) -> None:
        began = time.perf_counter()
        random = np.random.default_rng([self.how.seed, epoch])
        torch.manual_seed(self.how.seed * 100_003 + epoch)
        steps = _steps(self.of, self.how.lists, self.how.list_size, random)
        self.model.network.train()
        total, counted = 0.0, 0
        for number, lists in enumerate(steps):
            self._set_learning_rate(epoch + number / len(steps))
            with busy():  # a step, not the epoch: a measurement need not wait long, and a paused training does not hold it up
                value = self._step(lists[self.rank :: self.world] or lists[:1])
            if math.isfinite(value):
                total, counted = total + value, counted + 1
            self.how.progress.step(epoch * len(steps) + number + 1, self.how.epochs * len(steps), f"epoch {epoch + 1}")
            self.how.progress.check()
        trained = time.perf_counter()
        self._agree()
        report = {"epoch": epoch + 1, "epochs": self.how.epochs, "loss": total / max(counted, 1), "skipped_steps": len(steps) - counted}
        score = float(epoch)
        current = _copy(self.model.network)
        if self.how.average:
            self.model.network.load_state_dict(self.average)
        if self.valid is not None:
            with busy():
                report |= _scores(self.model, self.valid)
            score = report["valid_score"]
        report = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in report.items()}
        report |= {
            "train_s": trained - began,
            "valid_s": time.perf_counter() - trained,
            "learning_rate": self.optimizer.param_groups[0]["lr"],
        }
        self.seconds += time.perf_counter() - began
        self.history.append(report)
        if score > self.best:
            self.best, self.best_epoch, self.best_weights = score, epoch, _copy(self.model.network)
        self.model.network.load_state_dict(current)
        if self.rank == 0:
            self.how.progress.event("epoch", **report)

    def _step(self, lists: list[np.ndarray]) -> float:
        """One update from lists of rows; the loss, or NaN when its gradient was not finite and the step was left out."""
        longest = max(map(len, lists))
        place = np.full((len(lists), longest), -1)
        for i, rows in enumerate(lists):
            place[i, : len(rows)] = rows
        mask = place >= 0
        device = self.model.device
        batch = self.model.batch(self.train_set.inputs, place[mask])
        on = torch.from_numpy(mask).to(device)
        labels = torch.zeros(place.shape, device=device)
        labels[on] = torch.from_numpy(self.train_set.label[place[mask]].astype(np.float32)).to(device)
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16) if self.how.amp else nullcontext():
            scores = self.module(batch)
        padded = torch.zeros_like(labels).masked_scatter(on, scores.float())
        value = self.loss(padded, labels, on)
        value.backward()
        norm = nn.utils.clip_grad_norm_(self.model.network.parameters(), self.how.clip)
        if not torch.isfinite(norm):
            return math.nan
        self.optimizer.step()
        self._update_average()
        return float(value.detach())

    @torch.no_grad()
    def _update_average(self) -> None:
        if not self.how.average:
            return
        self.updates += 1
        decay = min(self.how.average, self.updates / (self.updates + 10))  # the first steps are soon forgotten
        now = self.model.network.state_dict()
        torch._foreach_lerp_([self.average[k] for k in self.floats], [now[k] for k in self.floats], 1 - decay)
        for name in now.keys() - set(self.floats):
            self.average[name].copy_(now[name])

    def _agree(self) -> None:
        """Gradients were averaged over the processes; running statistics were not: all take the first one's."""
        if self.world > 1:
            from torch import distributed

            for tensor in (*self.model.network.state_dict().values(), *self.average.values()):
                distributed.broadcast(tensor, 0)

    def _set_learning_rate(self, at: float) -> None:
        """Linear warm-up over the first epoch, then half a cosine down to a twentieth."""
        done = at / self.how.epochs
        factor = min(1.0, 0.1 + at) * (0.05 + 0.95 * (1 + math.cos(math.pi * done)) / 2)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * factor

    # -- checkpoints ---------------------------------------------------------------------------------------------------

    def _save(self, epoch: int) -> None:
        folder = self.how.checkpoint
        if folder is None or self.rank != 0:
            return
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"network.{k}": v for k, v in self.model.network.state_dict().items()}
        tensors |= {f"average.{k}": v for k, v in self.average.items()}
        tensors |= {f"best.{k}": v for k, v in self.best_weights.items()}
        for i, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{i}.{k}": v for k, v in state.items()}
        name = f"checkpoint-{epoch}.safetensors"
        save_file({k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}, folder / name)
        about = {"file": name, "epoch": epoch, "best": self.best, "best_epoch": self.best_epoch, "history": self.history,
                 "updates": self.updates,
                 "seconds": self.seconds, "how": self._identity()}  # fmt: skip
        write_json(folder / "checkpoint.json", about)
        for old in folder.glob("checkpoint-*.safetensors"):
            if old.name != name:
                old.unlink()

    def _resume(self) -> int:
        folder = self.how.checkpoint
        if folder is None or not (folder / "checkpoint.json").exists():
            return 0
        try:
            about = json.loads((folder / "checkpoint.json").read_text())
            tensors = load_tensors(folder / about["file"])
        except (ValueError, OSError, KeyError) as error:
            raise UserError(f"The checkpoint in {folder} cannot be read: {error}.", hint="Remove that folder to start again.") from None
        if about["how"] != self._identity():
            raise UserError(
                f"The checkpoint in {folder} is of another training (other data, model or settings).",
                hint="Remove that folder to start again, or name another one.",
            )
        self.model.network.load_state_dict(_with_prefix(tensors, "network."))
        self.best_weights, self.average = _with_prefix(tensors, "best."), _with_prefix(tensors, "average.")
        self.updates = about["updates"]
        state = self.optimizer.state_dict()
        for key, value in _with_prefix(tensors, "optimizer.").items():
            i, _, name = key.partition(".")
            state["state"].setdefault(int(i), {})[name] = value
        self.optimizer.load_state_dict(state)
        self.best, self.best_epoch, self.seconds = about["best"], about["best_epoch"], about["seconds"]
        self.history = about["history"]
        return about["epoch"]

    def _identity(self) -> dict[str, Any]:
        how = self.how
        names = (
            "seed",
            "epochs",
            "patience",
            "lists",
            "list_size",
            "learning_rate",
            "weight_decay",
            "loss",
            "compare_across",
            "clip",
            "amp",
        )
        return {
            **{n: getattr(how, n) for n in names}, "model": self.model.name, "settings": self.model.settings,
            "programs": len(self.train_set),
            "labels": float(np.float64(self.train_set.label).sum()), "world": self.world,
        }  # fmt: skip


def _scores(model: NeuralModel, valid: Examples) -> dict[str, float]:
    """What the validation part says; valid_score chooses the epoch."""
    found = valid.truth.evaluate(model.predict(valid.inputs))
    names = ("top1", "top5", "top1_mean", "top5_mean", "pairwise", "spearman")
    return {**{f"valid_{n}": found[n] for n in names}, "valid_score": choice_score(found)}


def _rows_by_assignment(examples: Examples) -> list[np.ndarray]:
    order = np.argsort(examples.assignment, kind="stable")
    cuts = np.flatnonzero(np.diff(examples.assignment[order])) + 1
    groups = np.split(order, cuts)
    # an assignment whose programs all have one label (a single program, or all failed) teaches no order
    return [g for g in groups if len(g) and np.ptp(examples.label[g]) > 0]


def _steps(groups: list[np.ndarray], lists: int, size: int, random: np.random.Generator) -> list[list[np.ndarray]]:
    """Every program once: each assignment's programs are shuffled and cut into lists of about `size`; each step takes `lists`."""
    pieces: list[np.ndarray] = []
    for rows in groups:
        parts = max(1, round(len(rows) / size))
        pieces += [p for p in np.array_split(random.permutation(rows), parts) if len(p) > 1]
    order = random.permutation(len(pieces))
    return [[pieces[i] for i in order[at : at + lists]] for at in range(0, len(pieces), lists)]


def _copy(network: nn.Module) -> dict[str, torch.Tensor]:
    return {k: v.detach().clone() for k, v in network.state_dict().items()}


def _with_prefix(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {k[len(prefix) :]: v for k, v in tensors.items() if k.startswith(prefix)}


def _device(name: str, rank: int) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda":
        if not torch.cuda.is_available():
            raise UserError("There is no CUDA GPU here.", hint="Use --device cpu.")
        return torch.device("cuda", rank % torch.cuda.device_count())
    return torch.device(name)


class _processes:
    """(rank, world) of torchrun; joins its process group and leaves it. Alone: (0, 1)."""

    def __enter__(self) -> tuple[int, int]:
        self.joined = False
        world = int(os.environ.get("WORLD_SIZE", "1"))
        if world == 1:
            return 0, 1
        from torch import distributed

        if not distributed.is_initialized():
            distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
            self.joined = True
        return distributed.get_rank(), distributed.get_world_size()

    def __exit__(self, *error: object) -> None:
        if self.joined:
            from torch import distributed

            distributed.destroy_process_group()
