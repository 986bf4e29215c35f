"""Search strategies: arrays that mean the same as TVM's traces, and the template that every strategy must pass."""

from __future__ import annotations

import json
import math
from collections import Counter

import numpy as np
import pytest
import tvm

from tcl.errors import UserError
from tcl.features.flat import FLAT_FEATURES, flat_of
from tcl.programs.types import Program
from tcl.tuning.allocate import Account, gain, next_task
from tcl.tuning.design_space import Applier, apply, module, sample_programs
from tcl.tuning.operators import operator_task
from tcl.tuning.search import evolutionary
from tcl.tuning.search.base import STRATEGIES, WARM_UP, make
from tcl.tuning.search.decisions import HEARING, Draft, _place_in, split
from tcl.tuning.search.footprints import Footprints
from tcl.tuning.search.scorer import Scorer, with_body
from tcl.tuning.search.space import Slot, Space, tilings
from tcl.tuning.targets import platform_for

pytestmark = pytest.mark.tvm
OPERATORS = ["matmul:96,64,32", "softmax:32,100", "conv2d:1,8,14,14,16,3,3,1,1", "relu:30,50"]


@pytest.fixture(scope="module")
def platform():
    return platform_for("native")


@pytest.fixture(scope="module")
def target(platform):
    return json.loads(platform.target)


def spaces_of(task, target, n=40):
    rng = np.random.default_rng(0)
    groups = {}
    for program in sample_programs(task, target, n, seed=3):
        head, decisions = split(program.schedule)
        groups.setdefault(head, []).append(decisions)
    return [(Space(json.loads(head), found, rng), found) for head, found in groups.items()]


@pytest.mark.parametrize(("extent", "parts", "innermost"), [(1, 4, 64), (12, 2, 64), (256, 4, 64), (97, 2, 64), (128, 2, 8)])
def test_tilings_are_all_and_only_the_factorisations(extent, parts, innermost):
    found = tilings(extent, parts, innermost)
    grid = np.stack(np.meshgrid(*[[d for d in range(1, extent + 1) if extent % d == 0]] * parts), axis=-1).reshape(-1, parts)
    expected = grid[(grid.prod(axis=1) == extent) & (grid[:, -1] <= innermost)]
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, expected.tolist()))


@pytest.mark.parametrize("spec", OPERATORS)
def test_genes_are_the_programs(spec, target):
    task = operator_task(spec)
    for space, found in spaces_of(task, target):
        for decisions in found:
            gene = space.gene(decisions)
            text = space.text(gene)
            assert json.loads(text) == [space.instructions, decisions]
            direct, read = space.tokens(gene[None]), Scorer.tokens([text])
            assert (direct.kind == read.kind).all() and (direct.length == read.length).all()
            np.testing.assert_array_equal(direct.numbers, read.numbers)


@pytest.mark.parametrize("spec", OPERATORS)
def test_flat_features_by_look_up_are_those_of_the_tokens(spec, target):
    task = operator_task(spec)
    for space, _ in spaces_of(task, target):
        genes = space.draw(300, np.random.default_rng(2))
        np.testing.assert_array_equal(space.flat(genes), flat_of(space.tokens(genes)))


@pytest.mark.parametrize("spec", ["matmul:96,64,32", "dense:8,12,32"])
def test_mutants_and_children_are_valid(spec, target):
    task = operator_task(spec)
    rng = np.random.default_rng(1)
    applier = Applier(module(task), tvm.target.Target(target))
    for space, _ in spaces_of(task, target):
        parents = space.draw(64, rng)
        mutants = space.mutate(parents, rng)
        changed = (mutants != parents).sum(axis=1)
        assert changed.max() <= 2 and (changed > 0).mean() > 0.4
        children = space.cross(parents, parents[::-1], rng)
        assert ((children == parents) | (children == parents[::-1])).all()
        if any(slot.kind == "location" for slot in space.slots):
            continue  # TVM judges those: the search asks it before it proposes them
        for gene in mutants[:4]:
            applier.schedule(space.text(gene))


def test_a_step_moves_one_prime_factor(target):
    ((space, _), *_) = spaces_of(operator_task("matmul:96,64,32"), target)
    slot = space.slots[0]
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(slot.choices), 500)
    before, after = slot.choices[rows], slot.choices[slot.step(rows, rng)]
    assert (after.prod(axis=1) == 96).all()
    assert set((before != after).sum(axis=1).tolist()) == {0, 2}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("model", ["random", "xgb"])
def test_template(strategy, model, platform, target, monkeypatch):
    """Distinct programs, never proposed again, valid for the task; the first ones random until the model knows something."""
    monkeypatch.setattr(evolutionary, "POPULATION", 64)  # TVM lowers every candidate
    task = operator_task("matmul:96,64,32")
    search = make(strategy, task, target, model, platform=platform, seed=3)
    seen = set()
    for _ in range(3):
        batch = search.propose(WARM_UP)
        ids = {p.program.id for p in batch}
        assert len(ids) == len(batch) == WARM_UP and not ids & seen
        assert all(p.score is None or math.isfinite(p.score) for p in batch)
        apply(task, batch[0].program, target)
        if not seen and model == "xgb":
            assert all(p.random for p in batch)
        seen |= ids
        # a made-up latency that a model can learn, with a failure in each batch
        latencies = [1e-3 * (1 + i % 5) for i in range(len(batch) - 1)] + [math.nan]
        search.observe([p.program for p in batch], latencies)
    assert any(p.random for p in batch)
    assert any(not p.random for p in batch) == (strategy != "random")
    assert (search.scored > 0) == (strategy != "random")


def test_a_small_space_is_exhausted_without_an_error(platform, target):
    search = make("decisions", operator_task("relu:2,3"), target, "xgb", platform=platform)
    total = 0
    for _ in range(12):
        batch = search.propose(16)
        if not batch:
            break
        total += len(batch)
        search.observe([p.program for p in batch], [1e-6 * (i + 1) for i in range(len(batch))])
    assert not batch and total > 0


def test_decisions_find_what_a_known_rule_favours(platform, target):
    """With latencies that depend on one tiling only, the search must concentrate on the fast one."""
    task = operator_task("matmul:256,256,256")

    def latency(program: Program) -> float:
        _, decisions = split(program.schedule)
        inner = next(v[-1] for _, v in decisions[1:] if isinstance(v, list))
        return 1e-3 * (1 + abs(math.log2(inner) - 4))

    search = make("decisions", task, target, "xgb", platform=platform, seed=1)
    chosen = []
    for _ in range(4):
        batch = search.propose(16)
        search.observe([p.program for p in batch], [latency(p.program) for p in batch])
        chosen = [latency(p.program) for p in batch if not p.random]
    assert np.mean(chosen) < 1.5e-3


def test_a_niche_is_what_programs_with_the_same_inner_tiles_share(target):
    spaces = spaces_of(operator_task("matmul:96,64,32"), target)
    tables = {}
    for space, _ in spaces:
        genes = space.draw(200, np.random.default_rng(0))
        for gene, niche in zip(genes, space.niches(genes), strict=True):
            _, decisions = split(space.text(gene))
            inner = tuple(tuple(v[-2:] if len(v) > 2 else v[1:]) for _, v in decisions if isinstance(v, list))
            assert tables.setdefault(niche, inner) == inner  # the same in all design spaces
    assert len(tables) == len(set(tables.values())) > 50
    for space, _ in spaces_of(operator_task("relu:30,50"), target):
        genes = np.unique(space.draw(50, np.random.default_rng(0)), axis=0)
        if all(slot.kind != "tile" for slot in space.slots):
            assert len(np.unique(space.niches(genes))) == len(genes)


def test_trees_see_the_body_that_unrolling_leaves():
    """8 x 16 x 4 steps with a limit of 64: 512 over 65 in all; the 16 become a vector, which leaves 32."""
    flat = np.zeros((1, len(FLAT_FEATURES)), dtype=np.float32)
    for name, value in {"split0_factor3": 8, "split1_factor3": 16, "reduction_factor1": 4}.items():
        flat[0, FLAT_FEATURES.index(name)] = math.log2(value)
    flat[0, FLAT_FEATURES.index("value_pragma_unroll_0")] = math.log2(65)
    added = 2 ** with_body(flat)[0, len(FLAT_FEATURES) :]
    np.testing.assert_allclose(added * 65, [512, 64, 32, 512, 512, 512, 512], rtol=1e-5)
    np.testing.assert_array_equal(with_body(flat)[:, : len(FLAT_FEATURES)], flat)


@pytest.mark.parametrize("spec", ["matmul:96,64,32", "conv2d:1,8,14,14,16,3,3,2,1"])
def test_footprints_are_the_data_that_a_tile_touches(spec, target):
    """Of the innermost spatial and reduction tiles, against formulas; tokens keep logarithms in half precision."""
    task = operator_task(spec)
    for space, _ in spaces_of(task, target):
        found = Footprints.of(module(task), space.instructions)
        genes = space.draw(12, np.random.default_rng(0))
        columns = found.columns(space.flat(genes))
        for gene, row in zip(genes, columns, strict=True):
            _, decisions = split(space.text(gene))
            inner = [v[-1] for _, v in decisions if isinstance(v, list)]
            if spec.startswith("matmul"):
                i, j, k = inner
                touched = [i * k, k * j, i * j]
            else:  # stride 2
                n, o, y, x, c, r, t = inner
                touched = [n * c * (2 * (y - 1) + r) * (2 * (x - 1) + t), o * c * r * t, n * o * y * x]
            np.testing.assert_allclose(2 ** row[2], sum(touched), rtol=0.01)
            np.testing.assert_allclose(2 ** row[3], math.prod(inner) / sum(touched), rtol=0.01)
            np.testing.assert_allclose(2 ** row[10:13], touched, rtol=0.01)
    relu = operator_task("relu:30,50")
    assert all(Footprints.of(module(relu), space.instructions) is None for space, _ in spaces_of(relu, target))


def test_the_place_in_a_group():
    assert _place_in(np.array([5, 3, 5, 5, 3, 9])).tolist() == [0, 0, 1, 2, 1, 0]
    assert _place_in(np.array([], dtype=np.int64)).tolist() == []


def test_every_design_space_is_heard_and_no_loop_body_fills_a_batch(platform, target):
    """Even where all that was measured speaks for one design space."""
    search = make("decisions", operator_task("matmul:96,64,32"), target, "xgb", platform=platform, seed=1)
    favourite = sorted(search.spaces)[0]
    heard = Counter()
    for _ in range(5):
        batch = search.propose(16)
        chosen = [p.program for p in batch if not p.random]
        heads = [split(p.schedule)[0] for p in chosen]
        heard.update(heads)
        bodies = Counter(_body(search, p) for p in chosen)
        assert not bodies or (max(bodies.values()) <= 3 and len(bodies) >= len(chosen) // 3)
        search.observe([p.program for p in batch], [1e-5 if split(p.program.schedule)[0] == favourite else 1e-3 for p in batch])
    assert len(search.spaces) > 1 and all(heard[head] >= HEARING for head in search.spaces)
    assert heard[favourite] > 2 * (sum(heard.values()) - heard[favourite]) / (len(search.spaces) - 1)


def _body(search, program):
    head, decisions = split(program.schedule)
    return int(search.spaces[head].bodies(search.spaces[head].gene(decisions)[None])[0])


def test_a_step_leads_to_the_next_size_of_one_innermost_loop():
    tiles = tilings(48, 3, 64)
    slot = Slot(0, "tile", tiles)
    row = slot.row([2, 4, 6])
    assert sorted(tiles[slot.around(row)].tolist()) == [[2, 2, 12], [2, 3, 8], [3, 4, 4], [4, 4, 3]]
    assert slot.around(slot.row([1, 1, 48]))  # at the end of the sizes
    assert Slot(1, "categorical", np.arange(4)[:, None]).around(2) == [0, 1, 3]
    assert Slot(2, "location", np.arange(3)[:, None]).around(1) == []


def test_every_step_has_a_loop_body_of_its_own(target):
    search = make("decisions", operator_task("matmul:96,64,32"), target, "random")
    space = next(iter(search.spaces.values()))
    gene = space.draw(1, np.random.default_rng(3))[0]
    around = space.steps(gene)
    assert len(around) > 8 and ((around != gene).sum(axis=1) == 1).all()
    bodies = space.bodies(around)
    assert len(np.unique(bodies)) == len(bodies) and space.bodies(gene[None])[0] not in bodies
    outer = space.slots[0].choices
    same = np.flatnonzero(outer[:, -1] == outer[gene[0], -1])
    moved = np.repeat(gene[None], len(same), axis=0)
    moved[:, 0] = same
    assert len(same) > 1 and len(np.unique(space.bodies(moved))) == 1  # how outer loops are split is not part of it


def test_neighbours_of_the_fastest_are_measured_whatever_their_score(platform, target):
    """A quarter of a batch is one step away from the fastest loop bodies, with a body that nobody has measured."""
    search = make("decisions", operator_task("dense:64,96,96"), target, "xgb", platform=platform, seed=3)
    programs = search.draw(40)
    search.observe(programs, np.geomspace(1e-5, 1e-2, 40).tolist())
    known = {_body(search, p) for p in programs}
    batch = [p.program for p in search.propose(16) if not p.random]
    near = set()
    for program in programs:
        head, decisions = split(program.schedule)
        near |= {search.spaces[head].text(gene) for gene in search.spaces[head].steps(search.spaces[head].gene(decisions))}
    steps = [p for p in batch if p.schedule in near and _body(search, p) not in known]
    assert len(steps) >= 3


def test_what_was_never_measured_is_worth_more_the_less_scores_can_be_trusted(platform, target):
    search = make("decisions", operator_task("matmul:96,64,32"), target, "xgb", platform=platform, seed=1)
    head, space = next(iter(search.spaces.items()))
    known, new = space.draw(2, np.random.default_rng(1))
    bodies = space.bodies(np.stack([known, new])).tolist()
    search._measured[bodies[0]] = 24
    both = [Draft(0.1, head, known, bodies[0]), Draft(0.0, head, new, bodies[1])]
    search._trusted = [(0.0, 1e-3)] * 12  # scores that were always right
    assert search._curious(both) == both
    search._trusted = [(0.0, 1e-3), (0.0, 4e-3)] * 6
    assert search._curious(both) == both[::-1]


def test_random_programs_are_a_share_of_small_batches_too(platform, target):
    search = make("decisions", operator_task("matmul:96,64,32"), target, "random", platform=platform)
    batches = []
    for _ in range(15):
        batches.append(search.propose(4))
        search.observe([p.program for p in batches[-1]], [1e-3] * 4)
    assert [sum(p.random for p in batch) for batch in batches[:4]] == [2] * 4  # a new task: half of its first 16
    assert sum(p.random for batch in batches[4:] for p in batch) in (4, 5)


def test_the_tasks_of_a_run_learn_from_each_other(platform, target):
    """A rule learned on one matrix product ranks the programs of another, of which nothing is measured."""
    shared = {}
    first, second = operator_task("matmul:256,256,256"), operator_task("matmul:128,512,256")

    def slowness(program: Program) -> float:
        _, decisions = split(program.schedule)
        return 1e-3 * (1 + abs(math.log2(next(v[-1] for _, v in decisions[1:] if isinstance(v, list))) - 4))

    taught = make("decisions", first, target, "xgb", platform=platform, shared=shared)
    fresh = make("decisions", second, target, "xgb", platform=platform, shared=shared)
    assert not fresh.ready()
    batch = taught.draw(48)
    taught.observe(batch, [slowness(p) for p in batch])
    assert fresh.ready()
    chosen = [slowness(p.program) for p in fresh.propose(12) if not p.random]
    assert np.mean(chosen) < 0.7 * np.mean([slowness(p) for p in fresh.draw(48)])


def test_unknown_strategy_and_model(platform, target, tmp_path):
    task = operator_task("relu:2,3")
    with pytest.raises(UserError, match="no search strategy"):
        make("magic", task, target, "xgb")
    with pytest.raises(UserError, match="not a saved model"):
        make("decisions", task, target, str(tmp_path), platform=platform)


def test_trials_go_where_the_gain_is():
    big, small = operator_task("matmul:256,256,256"), operator_task("relu:8,8")
    accounts = [Account(small, 1.0), Account(big, 2.0)]
    assert next_task(accounts) is accounts[1]  # the largest share of the work first
    accounts[1].add(8, 1e-3)
    assert next_task(accounts) is accounts[0]  # then each once
    accounts[0].add(8, 1e-5)
    assert next_task(accounts) is accounts[1]
    assert gain(accounts[1]) == pytest.approx(2.0 * 1e-3 / 8)
    accounts[1].exhausted = True
    assert next_task(accounts) is accounts[0]
    accounts[0].exhausted = True
    assert next_task(accounts) is None
