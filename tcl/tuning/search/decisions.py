"""Search in decision space: an evolutionary search over arrays that never builds a schedule it does not propose.

TVM's evolutionary search replays a trace, runs post-processors and lowers every candidate. But all programs of a design space
share their instructions, and a cost model that reads primitives needs only the decisions. So populations are integer arrays
(`tcl.tuning.search.space`), featurised and scored in bulk; TVM sees the few best, whose traces its post-processors validate.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from itertools import repeat, zip_longest
from typing import Any, NamedTuple

import numpy as np

from tcl.features.tokenizer import Tokens
from tcl.programs.types import Program
from tcl.tuning.search.base import Proposal, Search
from tcl.tuning.search.footprints import Footprints
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
HEARING = 8
"""Chosen programs of every design space that are measured before scores alone decide between spaces: what a prior thinks of a whole
space may be wrong, and nothing else would ever tell."""
CORRECTED = 32
"""Measured programs from which a batch may hold many of a kind, and every other one is chosen as if there were no prior: what a
prior believes strongly and wrongly is otherwise never tried."""
CROWD = 16
"""Programs of a niche in a population: otherwise the many equal ones around the best fill it."""
INCUMBENTS = 8
"""Fastest measured loop bodies whose neighbours are tried."""
RECENT = 48
"""Chosen programs from which is told how far scores are off."""
NEWCOMERS = 0.1
"""Share of random programs in every generation."""
LESSON = 3000
"""Random programs on which the prior's student is trained."""


class Draft(NamedTuple):
    """A program of a design space that may be measured. `head`: of the space; `gene`: int64 (slots,); `body`: see `Space.bodies`."""

    score: float
    head: str
    gene: np.ndarray
    body: int


class DecisionSearch(Search):
    """`model`: "random", "xgb" (boosted trees on the measurements of this task) or a saved cost model's folder."""

    first_batch = 4
    """The first programs correct the model most, and a search that takes a fraction of a second can afford small batches."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        import tvm

        from tcl.tuning.design_space import Applier, module

        self.spaces: dict[str, Space] = {}
        self._genes: list[tuple[float, str, np.ndarray]] = []  # measured: latency, head of the space, gene
        self._batches = 0
        self._measured: Counter[int] = Counter()  # loop body -> measured programs
        self._expected: dict[int, float] = {}  # program -> score
        self._trusted: list[tuple[float, float]] = []  # of the chosen programs that were the first with their loop body: score, latency
        self._tried: defaultdict[str, list[int]] = defaultdict(list)  # head of the space -> keys of genes that were proposed or refused
        self._heard: Counter[str] = Counter()  # head of the space -> chosen programs
        with self.timed("space"):
            self.scorer = Scorer(self.task, self.platform, self.model, seed=self.seed, shared=self.shared)
            self._applier = Applier(module(self.task), tvm.target.Target(self.target))
            self._pilot()
            self.scorer.footprints = Footprints.of_any(self._applier.mod, (space.instructions for space in self.spaces.values()))

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
        self._batches += 1
        self.scorer.doubting = self.scorer.prior is not None and len(self._genes) >= CORRECTED and self._batches % 2 == 0
        if self.scorer.needs_student:
            self._teach()
        population = {h: g for h in heads if len(g := self._start(h, POPULATION // len(heads)))}
        archive: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}  # head -> keys, scores, genes of the best so far
        for generation in range(GENERATIONS):
            for head, genes in population.items():
                space = self.spaces[head]
                scores = self._draft(space, genes) - 10.0 * space.doubt(genes)
                archive[head] = _merge(space, archive.get(head), scores, genes, self._tried[head])
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
            if not len(mothers) and self._heard[head] >= HEARING:
                continue
            if self._heard[head] < HEARING:  # the archive is sorted
                mothers = np.concatenate([mothers, genes[self.rng.integers(0, min(len(genes), ELITE), POPULATION // (4 * len(heads)))]])
            fathers = mothers[self.rng.permutation(len(mothers))]
            crossed = np.where((self.rng.random(len(mothers)) < 0.5)[:, None], space.cross(mothers, fathers, self.rng), mothers)
            fresh = space.draw(max(1, round(NEWCOMERS * len(mothers))), self.rng)
            population[head] = np.concatenate([space.mutate(crossed, self.rng), fresh])
        return population

    def _pick(self, n: int, archive: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]) -> list[Proposal]:
        """Programs that TVM accepts and that are not known yet: half of them by score alone, a quarter one step from the fastest measured,
        a quarter out of curiosity; at most two with the same loop body, and a few of every space that had no hearing yet."""
        each = max(1, n // (2 * len(archive)))
        reserved = Counter({head: min(each, HEARING - self._heard[head]) for head in archive if self._heard[head] < HEARING})
        verified = self._verified(max(VERIFIED, 4 * n), archive, reserved)
        greedy, curious = sorted(verified, key=lambda d: -d.score), self._curious(verified)
        batch: list[Proposal] = []
        taken: list[Draft] = []
        # a prior that is wrong is wrong about all programs of a kind: before it was corrected, half of the choices must differ
        corrected = len(self.known) >= CORRECTED
        near = {head: 1 if corrected else len(space.slots) // 2 for head, space in self.spaces.items()}
        steps = self._steps() if corrected else []

        def fits(one: Draft, by: str) -> bool:
            if by == "need":
                return True
            if by != "score" and len(batch) + reserved.total() - reserved[one.head] >= n:
                return False
            if sum(t.body == one.body for t in taken) >= (1 if by == "step" else 2):
                return False
            return sum(t.head == one.head and int((t.gene != one.gene).sum()) <= near[t.head] for t in taken) < 2

        # a small space may hold too few loop bodies for all that
        ways = (("score", greedy, n // 2), ("step", steps, 3 * n // 4), ("curiosity", curious, n), ("need", greedy, n))
        for by, ranked, most in ways:
            for one in ranked:
                if len(batch) >= most:
                    break
                if not fits(one, by) or (program := self._validated(one.head, one.gene, batch)) is None:
                    continue
                taken.append(one)
                reserved[one.head] = max(0, reserved[one.head] - 1)
                batch.append(Proposal(program, one.score))
                if by != "step":
                    self._expected[program.id] = one.score
        self._heard.update(one.head for one in taken)
        return batch

    def _verified(
        self, most: int, archive: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]], reserved: Mapping[str, int]
    ) -> list[Draft]:
        """The `most` best of the archive, and more of the spaces for which places are reserved, scored by the model itself."""
        drafts = [(float(s), h, g) for h, (_, scores, genes) in archive.items() for s, g in zip(scores, genes, strict=True)]
        drafts.sort(key=lambda d: -d[0])
        places = Counter({head: 4 * share for head, share in reserved.items()})
        best = drafts[:most]
        for draft in drafts[most:]:
            if places[draft[1]] > 0:
                places[draft[1]] -= 1
                best.append(draft)
        return self._verify({head: np.stack(genes) for head in archive if (genes := [g for _, h, g in best if h == head])})

    def _steps(self) -> list[Draft]:
        """Programs with a new loop body one step away from the fastest: around each the most promising first, the fastest's in turns with
        the others'. Loop bodies are rugged: next to one that LLVM compiles badly may be the best, and no model tells that."""
        steps: list[list[Draft]] = []
        seen: set[int] = set()
        for _, head, gene in sorted(self._genes, key=lambda g: g[0]):
            space = self.spaces[head]
            body = int(space.bodies(gene[None])[0])
            if body in seen:
                continue
            seen.add(body)
            around = space.steps(gene)
            bodies = space.bodies(around)
            new = ~np.isin(bodies, list(self._measured)) & ~np.isin(space.keys(around), self._tried[head])
            if new.any():
                around, bodies = around[new], bodies[new]
                scores = self._draft(space, around) - 10.0 * space.doubt(around)
                order = np.argsort(-scores, kind="stable")
                steps.append([Draft(float(scores[i]), head, around[i], int(bodies[i])) for i in order])
            if len(seen) == INCUMBENTS:
                break
        return [one for turn in zip_longest(*steps) for one in turn if one is not None]

    def _curious(self, verified: list[Draft]) -> list[Draft]:
        """Verified programs in the order in which they are worth measuring: by their score and by how far it may be off, which is less
        for a loop body of which much was measured (an upper confidence bound)."""
        recent = self._trusted[-RECENT:]
        doubt = float(np.std([score + np.log(latency) for score, latency in recent])) if len(recent) >= 8 else 0.0
        seen = np.array([self._measured[one.body] for one in verified])
        bound = np.array([one.score for one in verified]) + doubt / np.sqrt(1.0 + seen)
        return [verified[i] for i in np.argsort(-bound, kind="stable")]

    def _validated(self, head: str, gene: np.ndarray, batch: Sequence[Proposal]) -> Program | None:
        """The program of a gene, as TVM accepts it; None where it is refused, known or in the batch already."""
        from tcl.tuning.design_space import InvalidSchedule, schedule_text

        space = self.spaces[head]
        self._tried[head].append(int(space.keys(gene[None])[0]))
        program = Program(self.task.id, space.text(gene))
        if program.id in self.known or any(p.program.id == program.id for p in batch):
            return None
        try:
            with self.timed("validate"):
                schedule = self._applier.schedule(program.schedule)
        except InvalidSchedule:
            space.note(gene, valid=False)
            self.known[program.id] = np.nan
            return None
        # TVM moves a location that does not exist to one that does
        actual = Program(self.task.id, schedule_text(schedule.trace))
        space.note(gene, valid=actual.id == program.id)
        if actual.id != program.id:
            self.known[program.id] = np.nan
            if actual.id in self.known or any(p.program.id == actual.id for p in batch):
                return None
        return actual

    def _learn(self, programs: Sequence[Program], latencies: np.ndarray) -> None:
        self.scorer.observe(self.scorer.tokens([p.schedule for p in programs]), latencies)
        for program, latency in zip(programs, latencies, strict=True):
            head, decisions = split(program.schedule)
            if head not in self.spaces:  # a design space so rare that the pilot missed it
                self.spaces[head] = Space(json.loads(head), [decisions], self.rng)
            gene = self.spaces[head].gene(decisions)
            if gene is None:
                continue
            body = int(self.spaces[head].bodies(gene[None])[0])
            if np.isfinite(latency):
                self._genes.append((float(latency), head, gene))
                if program.id in self._expected and not self._measured[body]:
                    self._trusted.append((self._expected[program.id], float(latency)))
            self._measured[body] += 1

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

    def _verify(self, genes: dict[str, np.ndarray]) -> list[Draft]:
        """Programs of all spaces, scored by the model at once."""
        with self.timed("features"):
            tokens, flat = self._features(genes)
        with self.timed("model"):
            scores = self.scorer.score(tokens, flat)
        self.scored += len(scores)
        each = [one for head, rows in genes.items() for one in zip(repeat(head), rows, self.spaces[head].bodies(rows).tolist())]
        return [Draft(float(score), *one) for score, one in zip(scores, each, strict=True)]

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
    space: Space, best: tuple[np.ndarray, np.ndarray, np.ndarray] | None, scores: np.ndarray, genes: np.ndarray, tried: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The best distinct programs of both, best first: at most 2 x PARENTS, and of a niche CROWD besides those `tried` (their keys)."""
    keys = space.keys(genes)
    if best is not None:
        keys, scores, genes = (np.concatenate(pair) for pair in zip(best, (keys, scores, genes), strict=True))
    _, first = np.unique(keys, return_index=True)
    order = first[np.argsort(-scores[first], kind="stable")]
    new = np.flatnonzero(~np.isin(keys[order], tried))
    crowded = new[_place_in(space.niches(genes[order[new]])) >= CROWD]
    order = np.delete(order, crowded)[: 2 * PARENTS]
    return keys[order], scores[order], genes[order]


def _place_in(groups: np.ndarray) -> np.ndarray:
    """int64 (n,): how many earlier elements have the same value."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    place = np.empty(len(groups), dtype=np.int64)
    place[order] = np.arange(len(groups)) - np.repeat(starts, np.diff(np.r_[starts, len(groups)]))
    return place


def _together(parts: list[Tokens]) -> Tokens:
    return Tokens(
        np.concatenate([p.kind for p in parts]), np.concatenate([p.numbers for p in parts]), np.concatenate([p.length for p in parts])
    )
