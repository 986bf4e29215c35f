"""Learn a platform with the active column, then consolidate it into the knowledge base. No data of an earlier platform is read.

Progress & Compress (arXiv 1805.06370) for cost models; all choices are our reconstruction. `tcl bench continual --set ablation=true`
compares them on validation tasks, which are neither trained nor tested on. What protects the earlier platforms, without their data:

freeze  the trunk is closed once it holds the first platform; later ones live in their slots. Nothing earlier can change.
ewc     the trunk stays open; online EWC (`tcl.continual.ewc`) holds the weights that mattered.
lwf     the trunk stays open; what the knowledge base said *before*, with each earlier platform's slot, on the *current* platform's
        programs must stay (learning without forgetting, Li and Hoiem, arXiv 1606.09282). Schedules of two platforms come from one
        space, so current programs are good probes of what earlier platforms would say.
ewc+lwf both.
none    no slots and no protection: distillation into the bare trunk (a baseline).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.func import functional_call

from tcl.continual import ewc
from tcl.continual.active_column import ActiveColumn
from tcl.continual.data import PlatformData
from tcl.continual.knowledge_base import KnowledgeBase, copied
from tcl.continual.slots import Weights, empty_slot, fold, slot_of_difference
from tcl.errors import UserError
from tcl.machine import busy
from tcl.models.mamba import Mamba
from tcl.models.neural import Batch
from tcl.programs.types import content_id
from tcl.progress import Progress
from tcl.training.loop import Scored, Trainer
from tcl.training.losses import lambda_rank
from tcl.training.metrics import Assignments

PROTECTIONS = ("freeze", "ewc", "lwf", "ewc+lwf", "none")
TARGETS = ("scores", "ranks")


@dataclass(frozen=True)
class Settings:
    """How to learn and consolidate. Our reconstruction.

    epochs, learning_rate, lists, list_size, loss: of the column (see `tcl.training.loop.Trainer`). start: "nearest" (the knowledge
    base's weights for the nearest platform) or "fresh". lateral: whether the column reads the knowledge base's states. hurts_below: a
    source whose ranking of the new platform's measured programs has a mean Spearman's rho below this is not used, and reported.
    protect: see this module. recall: how much what the knowledge base says for earlier platforms counts beside the column in what is
    consolidated (`teaching`). target: distil the standardised "scores" (mean squared error) or their "ranks" (LambdaRank).
    consolidate_epochs, consolidate_rate: of consolidation. ewc_strength, gamma: of online EWC. lwf_strength: weight of that term.
    fisher_lists: lists that the Fisher information is estimated from.

    Chosen on validation parts (BENCHMARKS.md, "Continual distillation"): "recall" pays on CPUs and GPUs; a column that starts from the
    nearest platform beats a fresh one (0.54 and 0.49 against 0.41 and 0.39 top-1); lateral connections make no clear difference; scores
    keep a little more pairwise accuracy than ranks, with top-1 alike. "freeze" is the default because it cannot forget; the strengths of
    the other protections have not been compared.
    """

    epochs: int = 20
    learning_rate: float | None = None
    lists: int = 4
    list_size: int = 32
    loss: str = "pairwise"
    start: str = "nearest"
    lateral: bool = True
    hurts_below: float = 0.0
    protect: str = "freeze"
    recall: float = 1.0
    target: str = "ranks"
    consolidate_epochs: int = 8
    consolidate_rate: float = 3e-3
    ewc_strength: float = 10.0
    gamma: float = 0.95
    lwf_strength: float = 1.0
    fisher_lists: int = 64

    def __post_init__(self) -> None:
        for name, value, known in (
            ("protection", self.protect, PROTECTIONS), ("target", self.target, TARGETS), ("start", self.start, ("nearest", "fresh")),
        ):  # fmt: skip
            if value not in known:
                raise UserError(f"There is no {name} {value!r}.", hint=f"Choose one of: {', '.join(known)}.")

    def plain(self) -> dict[str, Any]:
        return asdict(self)


# -- learn -----------------------------------------------------------------------------------------------------------------


def learn(
    base: KnowledgeBase, data: PlatformData, settings: Settings, seed: int, progress: Progress
) -> tuple[ActiveColumn, dict[str, Any]]:
    """Train an active column on `data.train`. Returns it and plain JSON: sources (rank agreement of each earlier platform with what was
    measured), nearest, warning, training (epochs, seconds, loss)."""
    column, report = new_column(base, data, settings, seed)
    column.remember(data.train.inputs)
    trainer = Trainer(
        seed=seed, epochs=settings.epochs, lists=settings.lists, list_size=settings.list_size, learning_rate=settings.learning_rate,
        loss=settings.loss, device="cpu", progress=progress,
    )  # fmt: skip
    trained = trainer.train(column, data.train, None)
    if trained["stopped"]:
        from tcl.progress import Stopped

        raise Stopped  # a column that is half trained is not a finished step
    report["training"] = {k: trained[k] for k in ("epochs", "seconds")} | {"loss": trained["history"][-1]["loss"]}
    return column, report


def new_column(base: KnowledgeBase, data: PlatformData, settings: Settings, seed: int) -> tuple[ActiveColumn, dict[str, Any]]:
    """An untrained column on what the knowledge base offers to this platform, and why. The same for the same arguments."""
    sources = source_agreement(base, data)
    nearest = max(sources, key=lambda name: sources[name]) if sources else None
    report: dict[str, Any] = {"sources": sources, "nearest": nearest, "warning": ""}
    if nearest is not None and sources[nearest] < settings.hurts_below:
        report["warning"] = (
            f"What {', '.join(sources)} taught ranks the programs of {data.platform} worse than chance (Spearman {sources[nearest]:.2f}): "
            "it would hurt and is not used."
        )
        nearest = None
    weights = base.weights(nearest) if nearest is not None else None
    start = weights if settings.start == "nearest" else None
    return ActiveColumn(base.shape, seed, start, weights if settings.lateral else None), report


def source_agreement(base: KnowledgeBase, data: PlatformData) -> dict[str, float]:
    """platform -> mean Spearman's rho of the knowledge base's ranking for it and what was measured here; 0 where none is defined."""
    truth = data.train.truth
    assert isinstance(truth, Assignments)
    result = {}
    for name, about in base.platforms.items():
        if about["kind"] != data.kind:
            continue
        rho = truth.spearman(base.model(name).predict(data.train.inputs))
        rho = rho[np.isfinite(rho)]
        result[name] = float(rho.mean()) if len(rho) else 0.0
    return result


# -- consolidate -----------------------------------------------------------------------------------------------------------


class _Scorer:
    """Scores of the Mamba with any weights, with gradients to them."""

    def __init__(self, model: Mamba) -> None:
        self.module = Scored(model.network)
        model.network.train()

    def __call__(self, weights: Weights, batch: Batch) -> torch.Tensor:
        return functional_call(self.module, {f"network.{k}": v for k, v in weights.items()}, (batch,))


def consolidate(
    base: KnowledgeBase, column: ActiveColumn, data: PlatformData, settings: Settings, seed: int, progress: Progress
) -> dict[str, Any]:
    """Put what the column learned into `base` (changed in place, its history excepted). Returns plain JSON: slot, epochs, losses, drift."""
    if data.platform in base.platforms:
        raise UserError(
            f"The knowledge base has learned {data.platform!r} already.", hint="Name the new measurements' platform differently."
        )
    first = not base.platforms
    slot = _choose_slot(base, data, settings)
    targets = teaching(base, column, data, settings)
    base.platforms[data.platform] = {"slot": slot, "kind": data.kind}
    model = base.shape.mamba()
    scorer = _Scorer(model)
    report: dict[str, Any] = {"slot": slot, "protect": settings.protect, "losses": []}
    if first and not len(column.network.adapters):
        # The column has the trunk's shape and no lateral connections: a copy is the perfect distillation.
        base.trunk = copied(column.network.own.state_dict())
    else:
        report |= _distil(base, column, data, targets, settings, seed, model, scorer, slot, progress)
    if "ewc" in settings.protect:
        with busy():
            new = _fisher(base, data, targets, settings, seed, model, scorer)
        base.fisher = ewc.updated(base.fisher, ewc.normalised(new), settings.gamma)
    return report


def teaching(base: KnowledgeBase, column: ActiveColumn, data: PlatformData, settings: Settings) -> np.ndarray:
    """What is distilled, float32 (n,) over the pool: the column's scores, and those that the knowledge base gives for each earlier
    platform of this kind, times `recall` and that platform's rank agreement with what was measured here (`source_agreement`); sources
    that would hurt do not count.

    A column that learned from a tenth of the programs ranks them worse than the knowledge base does for a platform that is close; their
    errors differ, and the sum ranks better than either. Far platforms agree little, and count little.
    """
    said = _standardised(column.predict(data.pool), data.pool_assignment)
    if settings.recall:
        for name, rho in source_agreement(base, data).items():
            if rho > max(0.0, settings.hurts_below):
                said = said + settings.recall * rho * _standardised(base.model(name).predict(data.pool), data.pool_assignment)
    return _standardised(said, data.pool_assignment)


def _choose_slot(base: KnowledgeBase, data: PlatformData, settings: Settings) -> int:
    if settings.protect == "none":
        return 0
    free = base.free_slot()
    if free is not None:
        return free
    agreement = source_agreement(base, data) or dict.fromkeys(base.platforms, 0.0)
    return int(base.platforms[max(agreement, key=lambda name: agreement[name])]["slot"])


def _distil(
    base: KnowledgeBase, column: ActiveColumn, data: PlatformData, targets: np.ndarray, settings: Settings, seed: int,
    model: Mamba, scorer: _Scorer, slot: int, progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    earlier = [p for p in base.platforms if p != data.platform]
    bare, frozen = settings.protect == "none", settings.protect == "freeze"
    shared = [p for p in base.sharing(slot) if p != data.platform]
    random = torch.Generator().manual_seed(seed & 0x7FFFFFFF)
    trunk = copied(base.trunk)
    anchor = base.trunk
    if bare:
        mine: Weights = {}
    elif shared:
        mine = {k: v[slot].clone() for k, v in base.bank.items()}
    else:
        # The column started from a platform's weights: what training changed of them is the best first guess of the slot.
        near = settings.start == "nearest" and bool(column.network.adapters)
        mine = slot_of_difference(trunk, copied(column.network.own.state_dict()) if near else trunk, base.shape.rank, random)
    trained = list(mine.values()) + ([] if frozen else [v for k, v in trunk.items() if not k.endswith("statistics")])
    for tensor in trained:
        tensor.requires_grad_(True)
    # Whose function can change, and must not: all of them while the trunk is open, else those that share the slot.
    guarded = earlier if "lwf" in settings.protect else shared if frozen else []
    before = {p: base.model(p).predict(data.pool) for p in guarded}
    guards = {p: (_standardised(s, data.pool_assignment), *_moments(s, data.pool_assignment)) for p, s in before.items()}
    optimizer = torch.optim.AdamW(trained, lr=settings.consolidate_rate, weight_decay=0.0)
    losses = []
    for epoch in range(settings.consolidate_epochs):
        torch.manual_seed((seed * 100_003 + epoch) & 0x7FFFFFFF)  # dropout draws alike, whether or not this process learned the column
        steps = _steps(data.pool_assignment, settings, np.random.default_rng([seed & 0x7FFFFFFF, epoch]))
        total = 0.0
        for number, lists in enumerate(steps):
            at = (epoch + number / len(steps)) / settings.consolidate_epochs
            for group in optimizer.param_groups:
                group["lr"] = settings.consolidate_rate * min(1.0, 0.1 + 10 * at) * (0.02 + 0.49 * (1 + float(np.cos(np.pi * at))))
            with busy():  # a step, not the whole: a measurement need not wait long, and a paused job does not hold it up
                rows = np.concatenate(lists)
                batch = model.batch(data.pool, rows)
                loss = _distillation(scorer(fold(trunk, mine), batch), targets, lists, settings)
                if guards:  # one earlier platform a step, in turn: the cost does not grow with their number
                    name = list(guards)[(number + epoch) % len(guards)]
                    z, mean, spread = guards[name]
                    slot_of = mine if name in shared else base.slot(name)
                    said = scorer(fold(trunk, slot_of), batch)
                    now = (said - torch.from_numpy(mean[rows])) / torch.from_numpy(spread[rows])
                    loss = loss + settings.lwf_strength * len(guards) * (now - torch.from_numpy(z[rows])).square().mean()
                if "ewc" in settings.protect and base.fisher:
                    loss = loss + settings.ewc_strength * ewc.penalty(trunk, anchor, base.fisher)
                optimizer.zero_grad(set_to_none=True)
                loss.backward()
                norm = nn.utils.clip_grad_norm_(trained, 1.0)
                if torch.isfinite(norm):
                    optimizer.step()
                    total += float(loss.detach())
            progress.step(epoch * len(steps) + number + 1, settings.consolidate_epochs * len(steps), f"epoch {epoch + 1}")
            progress.check()
        losses.append(total / max(len(steps), 1))
        progress.event(
            "epoch", phase="consolidate", platform=data.platform, epoch=epoch + 1, epochs=settings.consolidate_epochs, loss=losses[-1]
        )
    drift = float(sum((trunk[k].detach() - anchor[k]).square().sum() for k in trunk) ** 0.5)
    base.trunk = copied(trunk)
    for name, value in mine.items():
        base.bank[name][slot] = value.detach()
    return {"losses": losses, "drift": drift, "guarded": list(guards)}


def _distillation(scores: torch.Tensor, targets: np.ndarray, lists: list[np.ndarray], settings: Settings) -> torch.Tensor:
    rows = np.concatenate(lists)
    wanted = torch.from_numpy(targets[rows])
    if settings.target == "scores":
        return (scores - wanted).square().mean()
    longest = max(map(len, lists))
    mask = torch.from_numpy(np.arange(longest)[None] < np.array([len(x) for x in lists])[:, None])
    padded = torch.zeros(mask.shape).masked_scatter(mask, scores)
    labels = torch.zeros(mask.shape).masked_scatter(mask, wanted)
    return lambda_rank(padded, _rank_shares(labels, mask), mask)


def _rank_shares(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """(G, M) -> (G, M) in [0, 1]: the share of the list that is not better."""
    below = (values[:, :, None] >= values[:, None, :]) & mask[:, None, :]
    return below.sum(2) / mask.sum(1, keepdim=True).clamp(min=1) * mask


def _fisher(
    base: KnowledgeBase, data: PlatformData, targets: np.ndarray, settings: Settings, seed: int, model: Mamba, scorer: _Scorer
) -> Weights:  # fmt: skip
    torch.manual_seed(seed & 0x7FFFFFFF)
    trunk = copied(base.trunk)
    for tensor in trunk.values():
        tensor.requires_grad_(True)
    slot = base.slot(data.platform) if settings.protect != "none" else empty_slot(trunk, base.shape.rank)
    lists = [x for step in _steps(data.pool_assignment, settings, np.random.default_rng(seed & 0x7FFFFFFF)) for x in step]

    def loss_of(rows: np.ndarray) -> Callable[[], torch.Tensor]:
        def loss() -> torch.Tensor:
            scores = scorer(fold(trunk, slot), model.batch(data.pool, rows))
            labels = torch.from_numpy(targets[rows])[None]
            mask = torch.ones_like(labels, dtype=torch.bool)
            return lambda_rank(scores[None], _rank_shares(labels, mask), mask)

        return loss

    return ewc.diagonal_fisher((loss_of(rows) for rows in lists[: settings.fisher_lists]), trunk)


def _steps(assignment: np.ndarray, settings: Settings, random: np.random.Generator) -> list[list[np.ndarray]]:
    """Every program of the pool once: shuffled lists of one assignment each, `settings.lists` a step."""
    order = np.argsort(assignment, kind="stable")
    pieces: list[np.ndarray] = []
    for rows in np.split(order, np.flatnonzero(np.diff(assignment[order])) + 1):
        pieces += np.array_split(random.permutation(rows), max(1, round(len(rows) / settings.list_size)))
    pieces = [pieces[i] for i in random.permutation(len(pieces))]
    return [pieces[i : i + settings.lists] for i in range(0, len(pieces), settings.lists)]


def _moments(scores: np.ndarray, assignment: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """float32 (n,) each: mean and standard deviation of the scores of the program's assignment (at least 1e-3)."""
    count = np.maximum(np.bincount(assignment), 1)
    mean = (np.bincount(assignment, scores) / count)[assignment]
    spread = np.sqrt((np.bincount(assignment, (scores - mean) ** 2) / count)[assignment])
    return mean.astype(np.float32), np.maximum(spread, 1e-3).astype(np.float32)


def _standardised(scores: np.ndarray, assignment: np.ndarray) -> np.ndarray:
    """float32 (n,): scores with mean 0 and spread 1 within each assignment: what a ranking loss leaves free is taken out."""
    mean, spread = _moments(scores, assignment)
    return ((scores - mean) / spread).astype(np.float32)


def step_seed(seed: int, number: int, platform: str) -> int:
    """The seed of one step of a sequence: the same whether or not the sequence was interrupted before it."""
    return content_id("continual", str(seed), str(number), platform) & 0x7FFFFFFF
