"""Sequences: killed and continued, without the earlier platforms' data, with odd platforms."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from tcl.continual.data import Choice, platform_data
from tcl.continual.distill import PROTECTIONS, Settings, _standardised, consolidate, learn, teaching
from tcl.continual.evaluate import agreement, summary
from tcl.continual.knowledge_base import KnowledgeBase, Shape
from tcl.continual.movement import moved
from tcl.continual.sequence import run_sequence
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.splits import split_by_task
from tcl.progress import Progress
from tcl.training.metrics import Assignments
from tests.continual.conftest import PLATFORMS, write

SMALL = Shape(width=16, layers=2, d_state=4, slots=3)
QUICK = Settings(epochs=3, consolidate_epochs=2, fisher_lists=8, list_size=8)


def source(dataset, split_seed=0, **changes):
    split = split_by_task(dataset.tasks(), split_seed, (0.5, 0.0, 0.5))
    choice = replace(Choice(fraction=0.5, seed=0), **changes)
    return lambda name: platform_data(dataset, name, split, choice)


class Recorder(Progress):
    def __init__(self, stop_at=()):
        self.events, self.stop_at = [], stop_at

    def event(self, kind, **data):
        self.events.append((kind, data))
        if (kind, data.get("platform")) == self.stop_at:
            raise KeyboardInterrupt  # as good as a kill: nothing after this line runs


def scores(base, of):
    return {name: base.model(name).predict(of(name).test.inputs) for name in base.platforms}


@pytest.fixture(scope="module")
def whole(dataset, tmp_path_factory):
    """A sequence that was never interrupted."""
    recorder, of = Recorder(), source(dataset)
    base = run_sequence(
        PLATFORMS,
        of,
        tmp_path_factory.mktemp("whole"),
        test_of=lambda n: of(n).test,
        shape=SMALL,
        settings=QUICK,
        seed=3,
        progress=recorder,
    )
    return base, recorder, of


@pytest.mark.parametrize("kill_at", [("learned", "a100"), ("learned", "b200"), ("consolidated", "b200"), ("epoch", "c300")])
def test_a_killed_sequence_ends_with_the_same_numbers(whole, tmp_path, kill_at):
    base, _, of = whole
    arguments = {"test_of": lambda n: of(n).test, "shape": SMALL, "settings": QUICK, "seed": 3}
    with pytest.raises(KeyboardInterrupt):
        run_sequence(PLATFORMS, of, tmp_path, **arguments, progress=Recorder(kill_at))
    again = run_sequence(PLATFORMS, of, tmp_path, **arguments)
    for name, expected in scores(base, of).items():
        np.testing.assert_array_equal(again.model(name).predict(of(name).test.inputs), expected)
    assert json.dumps(summary(again.history)) == json.dumps(summary(base.history))


def test_a_finished_step_is_not_repeated(whole, tmp_path, dataset):
    _, _, of = whole
    with pytest.raises(KeyboardInterrupt):
        run_sequence(PLATFORMS, of, tmp_path, shape=SMALL, settings=QUICK, seed=3, progress=Recorder(("learned", "b200")))
    recorder, asked = Recorder(), []

    def counted(name):
        asked.append(name)
        return of(name)

    run_sequence(PLATFORMS, counted, tmp_path, shape=SMALL, settings=QUICK, seed=3, progress=recorder)
    assert asked == ["b200", "c300"]
    phases = {(d["platform"], d["phase"]) for kind, d in recorder.events if kind == "epoch"}
    assert phases == {("b200", "consolidate"), ("c300", "learn"), ("c300", "consolidate")}


def test_no_data_of_an_earlier_platform_is_read(whole, tmp_path):
    """Each platform lies in a dataset of its own, which is deleted once it was learned."""
    base, _, of = whole
    for name in PLATFORMS:
        data = write(tmp_path / name, platforms=PLATFORMS)
        only = Dataset.open(data.path)
        run_sequence([name], source(only), tmp_path / "kb", shape=SMALL, settings=QUICK, seed=3)
        shutil.rmtree(data.path)
    again = KnowledgeBase.load(tmp_path / "kb")
    for name, expected in scores(base, of).items():
        np.testing.assert_array_equal(again.model(name).predict(of(name).test.inputs), expected)


def test_events_hold_what_a_live_view_draws(whole):
    base, recorder, _ = whole
    learned = [d for kind, d in recorder.events if kind == "learned"]
    consolidated = [d for kind, d in recorder.events if kind == "consolidated"]
    assert [d["platform"] for d in learned] == [d["platform"] for d in consolidated] == list(PLATFORMS)
    assert list(learned[2]["sources"]) == ["a100", "b200"]
    assert [list(d["row"]) for d in consolidated] == [["a100"], ["a100", "b200"], ["a100", "b200", "c300"]]
    assert len({d["size_bytes"]["knowledge_base"] for d in consolidated}) == 1
    r = np.array(consolidated[-1]["summary"]["R"], dtype=float)
    assert np.isfinite(r[np.tril_indices(3)]).all()
    assert np.isnan(r[np.triu_indices(3, 1)]).all()
    assert base.history[1]["data"]["measured"] < base.history[1]["data"]["programs"]


def test_a_closed_trunk_forgets_nothing(whole):
    result = summary(whole[0].history)
    assert result["forgetting"] == 0
    assert result["worst_slice"]["drop"] == 0


@pytest.mark.parametrize("protect", PROTECTIONS)
def test_protection(dataset, protect):
    """Whatever protects, the knowledge base then ranks like the column; what is open moves, and what is closed does not."""
    of, settings = source(dataset), replace(QUICK, protect=protect, start="fresh", epochs=6, consolidate_epochs=40, consolidate_rate=1e-2)
    base = KnowledgeBase.new(SMALL, 0)
    for name in PLATFORMS[:2]:
        data = of(name)
        column, _ = learn(base, data, settings, 0, Progress())
        ranked = Assignments(data.pool_assignment, 2.0 ** -column.predict(data.pool))  # the column's order as if it were latencies
        before = ranked.spearman(base.model("a100").predict(data.pool)).mean() if base.platforms else 0.0
        report = consolidate(base, column, data, settings, 0, Progress())
    assert ranked.spearman(base.model("b200").predict(data.pool)).mean() > max(before, 0.5)
    assert (report["drift"] == 0) == (protect == "freeze")
    assert bool(base.fisher) == ("ewc" in protect)
    assert base.sharing(0) == (["a100", "b200"] if protect == "none" else ["a100"])


def test_ewc_and_lwf_hold_the_trunk(dataset):
    """A strong penalty keeps the trunk nearer to what it was, and the guarded function nearer to what it said."""
    of = source(dataset)
    first, second = of("a100"), of("c300")
    start = KnowledgeBase.new(SMALL, 0)
    column, _ = learn(start, first, QUICK, 0, Progress())
    consolidate(start, column, first, replace(QUICK, protect="ewc+lwf"), 0, Progress())
    said = start.model("a100").predict(second.pool)
    result = {}
    for name, changes in {
        "weak": {"protect": "ewc", "ewc_strength": 0.0},
        "ewc": {"protect": "ewc", "ewc_strength": 1e5},
        "lwf": {"protect": "lwf", "lwf_strength": 20.0},
    }.items():
        base = KnowledgeBase(
            start.shape, dict(start.trunk), {k: v.clone() for k, v in start.bank.items()}, dict(start.platforms), dict(start.fisher)
        )
        column, _ = learn(base, second, QUICK, 0, Progress())
        report = consolidate(base, column, second, replace(QUICK, consolidate_epochs=6, **changes), 0, Progress())
        result[name] = (report["drift"], float(np.corrcoef(base.model("a100").predict(second.pool), said)[0, 1]))
    assert result["ewc"][0] < result["weak"][0]
    assert result["lwf"][1] > result["weak"][1]


def test_a_full_bank_shares_the_nearest_slot_at_the_same_size(dataset, tmp_path):
    of, shape = source(dataset), replace(SMALL, slots=2)
    base = run_sequence(PLATFORMS, of, tmp_path, shape=shape, settings=QUICK)
    slots = [p["slot"] for p in base.platforms.values()]
    assert slots[:2] == [0, 1]
    assert slots[2] in (0, 1)
    assert len({h["size_bytes"]["knowledge_base"] for h in base.history}) == 1
    assert base.history[2]["consolidated"]["guarded"] == [list(base.platforms)[slots[2]]]


def test_one_platform(dataset, tmp_path):
    of = source(dataset)
    base = run_sequence(["b200"], of, tmp_path, test_of=lambda n: of(n).test, shape=SMALL, settings=QUICK)
    result = summary(base.history)
    assert len(result["R"]) == 1
    assert np.isnan(result["forgetting"])
    assert result["average"] == result["R"][0][0]


def test_a_platform_without_overlap(tmp_path):
    data = write(tmp_path / "data", platforms=("a100", "far"), disjoint=("far",))
    assert agreement(data.labels(["a100"]), data.labels(["far"])) == {"shared_tasks": 0, "shared_programs": 0, "tasks": 0, "spearman": None}
    of = source(data, split_seed=1)  # seed 0 happens to put every task of a100 on the test side
    base = run_sequence(["a100", "far"], of, tmp_path / "kb", test_of=lambda n: of(n).test, shape=SMALL, settings=QUICK)
    assert np.isfinite(base.history[1]["row"]["far"]["top1"])


def test_slices_in_which_everything_failed(tmp_path):
    failed = {("b200", t) for t in range(0, 8, 2)}  # every convolution of the second platform
    data = write(tmp_path / "data", all_failed=failed)
    of = source(data)
    base = run_sequence(PLATFORMS, of, tmp_path / "kb", test_of=lambda n: of(n).test, shape=SMALL, settings=QUICK)
    assert list(base.history[1]["row"]["b200"]["by_operator"]) == ["matmul"]
    assert np.isfinite(summary(base.history)["worst_slice"]["drop"])
    nothing = write(tmp_path / "nothing", all_failed={("a100", t) for t in range(8)}, platforms=("a100",))
    with pytest.raises(UserError, match="failed"):
        run_sequence(["a100"], source(nothing), tmp_path / "kb2", shape=SMALL, settings=QUICK)


def test_a_source_that_would_hurt_is_not_used(dataset):
    of = source(dataset)
    base = KnowledgeBase.new(SMALL, 0)
    data = of("a100")
    column, _ = learn(base, data, replace(QUICK, epochs=8), 0, Progress())
    consolidate(base, column, data, QUICK, 0, Progress())
    backwards = {k: v.clone() for k, v in base.trunk.items()}
    last = [k for k in backwards if k.startswith("head.") and k.endswith("weight")][-1]
    backwards[last] = -backwards[last]  # ranks everything the other way round
    upside = KnowledgeBase(base.shape, backwards, base.bank, base.platforms)
    for which, hurts in ((base, False), (upside, True)):
        column, report = learn(which, data, QUICK, 0, Progress())
        assert bool(report["warning"]) == hurts
        assert (len(column.network.adapters) == 0) == hurts


def test_what_is_consolidated_recalls_earlier_platforms(whole):
    base, _, of = whole
    data = of("c300")
    known = KnowledgeBase(base.shape, base.trunk, base.bank, {"a100": base.platforms["a100"]})
    column, report = learn(known, data, QUICK, 0, Progress())
    rho = report["sources"]["a100"]
    assert rho > 0
    own = teaching(known, column, data, replace(QUICK, recall=0.0))
    np.testing.assert_allclose(own, _standardised(column.predict(data.pool), data.pool_assignment), atol=1e-5)
    earlier = _standardised(known.model("a100").predict(data.pool), data.pool_assignment)
    expected = _standardised(own + 2 * rho * earlier, data.pool_assignment)
    np.testing.assert_allclose(teaching(known, column, data, replace(QUICK, recall=2.0)), expected, atol=1e-4)
    hurting = replace(QUICK, recall=2.0, hurts_below=rho + 0.01)  # a source that is not used does not speak either
    np.testing.assert_allclose(teaching(known, column, data, hurting), own, atol=1e-5)


def test_orders_that_make_no_sense(dataset, tmp_path):
    of = source(dataset)
    for order in ([], ["a100", "a100"]):
        with pytest.raises(UserError):
            run_sequence(order, of, tmp_path, shape=SMALL, settings=QUICK)
    run_sequence(["a100", "b200"], of, tmp_path, shape=SMALL, settings=QUICK)
    with pytest.raises(UserError, match="contradicts"):
        run_sequence(["b200", "a100", "c300"], of, tmp_path, settings=QUICK)
    base = run_sequence(["b200", "c300"], of, tmp_path, settings=QUICK)  # the command that added b200, run again with one more
    assert list(base.platforms) == list(PLATFORMS)
    with pytest.raises(UserError, match="shape"):
        run_sequence(["c300"], of, tmp_path, shape=Shape(), settings=QUICK)
    with pytest.raises(UserError):
        Settings(protect="prayer")


def test_cpus_and_gpus_are_kept_apart(tmp_path):
    data = write(tmp_path / "data", platforms=("a100", "xeon"), kinds={"xeon": "cpu"})
    with pytest.raises(UserError, match="kept apart"):
        run_sequence(["a100", "xeon"], source(data), tmp_path / "kb", shape=SMALL, settings=QUICK)
    assert list(run_sequence(["a100", "xeon"], source(data), tmp_path / "kb", settings=QUICK, mixed=True).platforms) == ["a100", "xeon"]


def test_agreement_and_movement(dataset):
    same = dataset.labels(["a100"])
    assert agreement(same, same)["spearman"] == pytest.approx(1)
    between = agreement(same, dataset.labels(["c300"]))
    assert between["spearman"] < 1
    data = source(dataset)("a100")
    model = SMALL.mamba(0)
    np.testing.assert_allclose(moved(model, model, data.pool), 0, atol=1e-5)
    assert moved(model, SMALL.mamba(1), data.pool).mean() > 0.05
