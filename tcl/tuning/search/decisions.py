"""Search in decision space: an evolutionary search over arrays that never builds a schedule it does not propose.

TVM's evolutionary search replays a trace, runs post-processors and lowers every candidate. But all programs of a design space
share their instructions, and a cost model that reads primitives needs only the decisions. So populations are integer arrays
(`tcl.tuning.search.space`), featurised and scored in bulk; TVM sees the few best, whose traces its post-processors validate.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcl.features.tokenizer import Tokens
from tcl.programs.types import Program
from tcl.tuning.search.base import Proposal, Search
from tcl.tuning.search.scorer import Scorer
from tcl.tuning.search.space import Space

PILOT = 128
"""Random programs that TVM draws once, to learn the task's design spaces from."""
POPULATION = 2048
GENERATIONS = 6
ELITE = 64
"""Fastest measured programs that start the population."""
PARENTS = 512
VERIFIED = 256
"""Best drafts that are scored by the verified score."""
NEWCOMERS = 0.1
"""Share of random programs in every generation."""
LESSON = 3000
"""Random programs on which the prior's student is trained."""


class DecisionSearch(Search):
    """`model`: "random", "xgb" (boosted trees on the measurements of this task) or a saved cost model's folder."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        import tvm

        from tcl.tuning.design_space import Applier, module

        self.spaces: dict[str, Space] = {}
        self._genes: list[tuple[float, str, np.ndarray]] = []  # measured: latency, head of the space, gene
        with self.timed("space"):
            self.scorer = Scorer(self.task, self.platform, self.model, seed=self.seed, shared=self.shared)
            self._applier = Applier(module(self.task), tvm.target.Target(self.target))
            self._pilot()

    def ready(self) -> bool:
        return self.scorer.ready and bool(self.spaces)

    def _pilot(self) -> None:
        from tcl.tuning.design_space import sample_programs

        groups: dict[str, list[list[list[Any]]]] = {}
        for program in sample_programs(self.task, self.target, PILOT, seed=self.seed * 7919 + 17):
            head, decisions = split(program.schedule)
            groups.setdefault(head, []).append(decisions)
        self.spaces = {head: Space(json.loads(head), examples, self.rng) for head, examples in groups.items()}

    def _guided(self, n: int) -> list[Proposal]:
        heads = list(self.spaces)
        if self.scorer.needs_student:
            self._teach()
        population = {h: g for h in heads if len(g := self._start(h, POPULATION // len(heads)))}
        archive: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # head -> keys, scores, genes of the best so far
        for generation in range(GENERATIONS):
            for head, genes in population.items():
                space = self.spaces[head]
                scores = self._draft(space, genes) - 10.0 * space.doubt(genes)
                archive[head] = _merge(archive.get(head), space.keys(genes), scores, genes)
            if generation < GENERATIONS - 1:
                population = self._next(archive)
        return self._pick(n, archive)

    def _start(self, head: str, size: int) -> np.ndarray:
        """Half the population is random, half are the fastest measured programs and their mutants."""
        space = self.spaces[head]
        best = sorted((g for g in self._genes if g[1] == head), key=lambda g: g[0])[:ELITE]
        if not best:
            return space.draw(size, self.rng)
        elite = np.stack([g[2] for g in best])
        chosen = elite[np.minimum(self.rng.geometric(min(0.5, 4.0 / len(elite)), size // 2) - 1, len(elite) - 1)]
        return np.concatenate([elite, space.mutate(chosen, self.rng), space.draw(size - size // 2, self.rng)])

    def _next(self, archive: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> dict[str, np.ndarray]:
        """The next generation: children of the best of all spaces, a space's share following its share of the parents."""
        heads = list(archive)
        scores = np.concatenate([archive[h][1] for h in heads])
        place = np.concatenate([np.full(len(archive[h][1]), i) for i, h in enumerate(heads)])
        best = np.argsort(-scores, kind="stable")[:PARENTS]
        weight = np.exp(-3.0 * np.arange(len(best)) / max(len(best), 1))  # by rank: scores have no scale of their own
        parents = self.rng.choice(best, POPULATION, p=weight / weight.sum())
        offsets = np.cumsum([0, *(len(archive[h][1]) for h in heads)])
        population = {}
        for i, head in enumerate(heads):
            space, genes = self.spaces[head], archive[head][2]
            mothers = genes[parents[place[parents] == i] - offsets[i]]
            if not len(mothers):
                continue
            fathers = mothers[self.rng.permutation(len(mothers))]
            crossed = np.where((self.rng.random(len(mothers)) < 0.5)[:, None], space.cross(mothers, fathers, self.rng), mothers)
            fresh = space.draw(max(1, round(NEWCOMERS * len(mothers))), self.rng)
            population[head] = np.concatenate([space.mutate(crossed, self.rng), fresh])
        return population

    def _pick(self, n: int, archive: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[Proposal]:
        """The best drafts, verified, validated by TVM, not known yet, and not all mutants of one."""
        from tcl.tuning.design_space import InvalidSchedule, schedule_text

        drafts = [(float(s), h, g) for h, (_, scores, genes) in archive.items() for s, g in zip(scores, genes, strict=True)]
        drafts.sort(key=lambda d: -d[0])
        best = drafts[: max(VERIFIED, 4 * n)]
        verified = self._verify({head: np.stack(genes) for head in archive if (genes := [g for _, h, g in best if h == head])})
        ranked = sorted(verified, key=lambda d: -d[0])
        batch: list[Proposal] = []
        taken: list[tuple[str, np.ndarray]] = []
        for score, head, gene in ranked:
            if len(batch) == n:
                break
            space = self.spaces[head]
            if sum(h == head and int((g != gene).sum()) <= 1 for h, g in taken) >= 2:
                continue
            program = Program(self.task.id, space.text(gene))
            if program.id in self.known:
                continue
            try:
                with self.timed("validate"):
                    schedule = self._applier.schedule(program.schedule)
            except InvalidSchedule:
                space.note(gene, valid=False)
                self.known[program.id] = np.nan
                continue
            # TVM moves a location that does not exist to one that does
            actual = Program(self.task.id, schedule_text(schedule.trace))
            space.note(gene, valid=actual.id == program.id)
            if actual.id != program.id:
                self.known[program.id] = np.nan
                if actual.id in self.known or any(p.program.id == actual.id for p in batch):
                    continue
                program = actual
            taken.append((head, gene))
            batch.append(Proposal(program, score))
        return batch

    def _learn(self, programs: Sequence[Program], latencies: np.ndarray) -> None:
        self.scorer.observe(self.scorer.tokens([p.schedule for p in programs]), latencies)
        for program, latency in zip(programs, latencies, strict=True):
            head, decisions = split(program.schedule)
            if head not in self.spaces:  # a design space so rare that the pilot missed it
                self.spaces[head] = Space(json.loads(head), [decisions], self.rng)
            gene = self.spaces[head].gene(decisions)
            if gene is not None and np.isfinite(latency):
                self._genes.append((float(latency), head, gene))

    def _teach(self) -> None:
        each = max(1, LESSON // len(self.spaces))
        genes = {head: space.draw(each, self.rng) for head, space in self.spaces.items()}
        with self.timed("features"):
            tokens, flat = self._features(genes)
        with self.timed("model"):
            self.scorer.teach_student(tokens, flat)

    def _draft(self, space: Space, genes: np.ndarray) -> np.ndarray:
        with self.timed("features"):
            flat = space.flat(genes)
        with self.timed("model"):
            scores = self.scorer.draft(flat)
        self.scored += len(genes)
        return scores

    def _verify(self, genes: dict[str, np.ndarray]) -> list[tuple[float, str, np.ndarray]]:
        """(score, head, gene) of programs of all spaces, asked of the model at once."""
        with self.timed("features"):
            tokens, flat = self._features(genes)
        with self.timed("model"):
            scores = self.scorer.score(tokens, flat)
        self.scored += len(scores)
        each = [(head, gene) for head, rows in genes.items() for gene in rows]
        return [(float(score), head, gene) for score, (head, gene) in zip(scores, each, strict=True)]

    def _features(self, genes: dict[str, np.ndarray]) -> tuple[Tokens, np.ndarray]:
        tokens = [self.spaces[head].tokens(rows) for head, rows in genes.items()]
        return _together(tokens), np.concatenate([self.spaces[head].flat(rows) for head, rows in genes.items()])


def split(schedule: str) -> tuple[str, list[list[Any]]]:
    """A program's `schedule` as the text of its instructions and its decisions."""
    if schedule.endswith(",[]]"):
        return schedule[1:-4], []
    cut = schedule.rfind("]],[[") + 2
    return schedule[1:cut], json.loads(schedule[cut + 1 : -1])


def _merge(
    best: tuple[np.ndarray, np.ndarray, np.ndarray] | None, keys: np.ndarray, scores: np.ndarray, genes: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best distinct programs of both, at most 2 x PARENTS."""
    if best is not None:
        keys, scores, genes = (np.concatenate(pair) for pair in zip(best, (keys, scores, genes), strict=True))
    _, first = np.unique(keys, return_index=True)
    order = first[np.argsort(-scores[first], kind="stable")][: 2 * PARENTS]
    return keys[order], scores[order], genes[order]


def _together(parts: list[Tokens]) -> Tokens:
    return Tokens(
        np.concatenate([p.kind for p in parts]), np.concatenate([p.numbers for p in parts]), np.concatenate([p.length for p in parts])
    )
