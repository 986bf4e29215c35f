"""Saved models and knowledge bases as what a search knows before it measures."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tcl.continual.knowledge_base import KnowledgeBase, Shape
from tcl.features.context import task_features
from tcl.models.base import make as make_model
from tcl.tuning.operators import operator_task
from tcl.tuning.search.base import make
from tcl.tuning.search.prior import Prior
from tcl.tuning.search.scorer import READY, Scorer
from tcl.tuning.targets import platform_for

pytestmark = pytest.mark.tvm


@pytest.fixture(scope="module")
def platform():
    return platform_for("native")


@pytest.fixture(scope="module")
def task():
    return operator_task("matmul:96,64,32")


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A knowledge base of two platforms that do not agree."""
    import torch

    folder = tmp_path_factory.mktemp("kb")
    made = KnowledgeBase.new(Shape(width=16, layers=1, slots=2), seed=1)
    made.platforms = {"one": {"slot": 0, "kind": "cpu"}, "two": {"slot": 1, "kind": "cpu"}}
    torch.manual_seed(0)
    made.bank = {k: torch.cat([v[:1], torch.randn_like(v[1:])]) if v.is_floating_point() else v for k, v in made.bank.items()}
    made.save(folder)
    return folder


def test_the_voice_that_ranks_best_takes_over(base, platform, task):
    prior = Prior.of(str(base), platform, {})
    assert list(prior.voices) == ["one", "two"] and prior.start == "two"  # the one learned last
    programs = make("random", task, json.loads(platform.target), "random", platform=platform).draw(40)
    tokens = Scorer.tokens([p.schedule for p in programs])
    scores = prior.all_scores(tokens, task_features([task])[0])
    assert scores.shape == (40, 2) and np.isfinite(scores).all()
    assert abs(np.corrcoef(scores.T)[0, 1]) < 0.95
    scorer = Scorer(task, platform, str(base))
    assert scorer.ready and scorer.voice == "two"
    scorer.observe(tokens, np.exp(-3.0 * (scores[:, 0] - scores[:, 0].min()) / np.ptp(scores[:, 0])))  # the truth is what "one" says
    assert scorer.voice == "one"
    assert prior.best_voice(scores[:READY], scores[:READY, 1], "two") == "two"


def test_a_platform_that_the_knowledge_base_knows_speaks_first(base, platform):
    from dataclasses import replace

    assert Prior.of(str(base), replace(platform, name="one"), {}).start == "one"


@pytest.mark.parametrize("strategy", ["decisions", "tvm"])
@pytest.mark.parametrize("model", ["mlp", "mamba"])
def test_saved_models_guide_from_the_first_batch(strategy, model, tmp_path, platform, task, monkeypatch):
    from tcl.tuning.search import decisions, evolutionary

    monkeypatch.setattr(decisions, "LESSON", 200)
    monkeypatch.setattr(evolutionary, "POPULATION", 32)
    make_model(model).save(tmp_path)
    shared = {}
    search = make(strategy, task, json.loads(platform.target), str(tmp_path), platform=platform, shared=shared)
    batch = search.propose(12)
    assert sum(p.random for p in batch) == 6 and len({p.program.id for p in batch}) == 12
    search.observe([p.program for p in batch], [1e-3 * (1 + i % 5) for i in range(11)] + [float("nan")])
    again = search.propose(12)
    assert not {p.program.id for p in batch} & {p.program.id for p in again}
    assert all(np.isfinite(p.score) for p in again if not p.random)
    assert sum(isinstance(v, Prior) for v in shared.values()) == 1  # read once for all tasks


def test_what_is_measured_corrects_the_prior(tmp_path, platform, task):
    """An untrained model knows nothing; after 48 measurements the score follows them."""
    make_model("mlp").save(tmp_path)
    scorer = Scorer(task, platform, str(tmp_path))
    programs = make("random", task, json.loads(platform.target), "random", platform=platform).draw(96)
    tokens = Scorer.tokens([p.schedule for p in programs])
    truth = 1e-3 * (1 + np.abs(tokens.numbers[:, 2, 1].astype(float) - 3) + np.abs(tokens.numbers[:, 3, 1].astype(float) - 2))
    before = np.corrcoef(scorer.score(tokens.take(np.arange(48, 96))), -truth[48:])[0, 1]
    scorer.observe(tokens.take(np.arange(48)), truth[:48])
    after = np.corrcoef(scorer.score(tokens.take(np.arange(48, 96))), -truth[48:])[0, 1]
    assert after > 0.6 and after > before


def test_who_doubts_the_prior_knows_only_what_was_measured(base, platform, task):
    programs = make("random", task, json.loads(platform.target), "random", platform=platform).draw(60)
    tokens = Scorer.tokens([p.schedule for p in programs])
    latency = np.linspace(1e-3, 2e-3, 60)
    doubting, without = Scorer(task, platform, str(base)), Scorer(task, platform, "xgb")
    for scorer in (doubting, without):
        scorer.observe(tokens, latency)
    believing = doubting.score(tokens)
    doubting.doubting = True
    assert not doubting.needs_student
    np.testing.assert_allclose(doubting.score(tokens), without.score(tokens), atol=1e-5)
    assert np.abs(believing - doubting.score(tokens)).max() > 1e-3
    doubting.doubting = False
    np.testing.assert_array_equal(doubting.score(tokens), believing)
