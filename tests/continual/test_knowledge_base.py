"""The knowledge base on disk, its slots and its size; the active column."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tcl.continual.active_column import ActiveColumn
from tcl.continual.knowledge_base import KnowledgeBase, Shape
from tcl.continual.slots import fold, slot_of_difference
from tcl.errors import UserError
from tcl.features.tokens import tokens_of
from tcl.models.base import Inputs, load

SMALL = Shape(width=16, layers=2, d_state=4, slots=3)


@pytest.fixture
def inputs(dataset):
    return Inputs.plain(tokens_of(dataset).take(np.arange(40)))


def filled(shape: Shape = SMALL, names=("a100", "b200")) -> KnowledgeBase:
    base = KnowledgeBase.new(shape, seed=1)
    generator = torch.Generator().manual_seed(0)
    for i, name in enumerate(names):
        base.platforms[name] = {"slot": i, "kind": "gpu"}
        base.history.append({"platform": name, "data": {"measured": 3}})
        for value in base.bank.values():
            value[i] = 0.1 * i * torch.randn(value[i].shape, generator=generator)
    base.fisher = {k: torch.rand(v.shape, generator=generator) for k, v in base.trunk.items()}
    return base


def test_a_fresh_slot_changes_nothing_and_can_be_trained():
    trunk = {k: v.detach() for k, v in SMALL.mamba().network.state_dict().items()}
    slot = slot_of_difference(trunk, trunk, 2, torch.Generator().manual_seed(0))
    for tensor in slot.values():
        tensor.requires_grad_(True)
    folded = fold(trunk, slot)
    assert all(torch.equal(folded[k], trunk[k]) for k in trunk)
    sum(v.square().sum() for v in folded.values()).backward()
    assert any(v.grad.abs().sum() > 0 for k, v in slot.items() if k.endswith(".up"))


def test_the_slot_of_a_difference_that_fits_is_exact():
    trunk = {k: v.detach() for k, v in SMALL.mamba().network.state_dict().items()}
    random = torch.Generator().manual_seed(1)
    slot = slot_of_difference(trunk, trunk, 2, random)
    wanted = fold(trunk, {k: torch.randn(v.shape, generator=random) for k, v in slot.items()})  # of rank 2
    found = fold(trunk, slot_of_difference(trunk, wanted, 2, random))
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, atol=1e-4, rtol=1e-4)
    nearer, farther = (
        float((fold(trunk, slot_of_difference(trunk, wanted, rank, random))["join.weight"] - wanted["join.weight"]).norm())
        for rank in (2, 1)
    )
    assert nearer < farther


def test_what_is_saved_is_what_is_read(tmp_path, inputs):
    base = filled()
    base.save(tmp_path / "kb")
    (tmp_path / "kb").rename(tmp_path / "elsewhere")
    again = KnowledgeBase.load(tmp_path / "elsewhere")
    assert again.platforms == base.platforms
    assert again.history == base.history
    for name in base.platforms:
        np.testing.assert_array_equal(again.model(name).predict(inputs), base.model(name).predict(inputs))
    torch.testing.assert_close(again.fisher["join.weight"], base.fisher["join.weight"], atol=1e-3, rtol=1e-3)
    assert not np.allclose(base.model("a100").predict(inputs), base.model("b200").predict(inputs))


def test_any_reader_of_cost_models_reads_a_platform(tmp_path, inputs):
    base = filled()
    base.save(tmp_path)
    np.testing.assert_array_equal(load(tmp_path).predict(inputs), base.model("b200").predict(inputs))
    base.export(tmp_path, "a100")
    np.testing.assert_array_equal(load(tmp_path).predict(inputs), base.model("a100").predict(inputs))


def test_the_size_is_constant_and_small():
    base = KnowledgeBase.new()
    empty = base.size_bytes()
    for i in range(8):
        base.platforms[f"p{i}"] = {"slot": i, "kind": "gpu"}
    assert base.size_bytes() == empty
    assert base.free_slot() is None
    column = ActiveColumn(base.shape, 0, base.weights("p0"), base.weights("p0"))
    assert base.size_bytes() + column.size_bytes() <= 0.8e6


def test_a_killed_save_leaves_the_state_before(tmp_path):
    filled(names=("a100",)).save(tmp_path)
    later = filled()
    card = tmp_path / "knowledge_base.json"
    text = card.read_text()
    later.save(tmp_path / "other")
    for file in (tmp_path / "other").glob("*-2.safetensors"):
        file.rename(tmp_path / file.name)  # weights of the next step are there, the card that names them is not
    assert card.read_text() == text
    assert list(KnowledgeBase.load(tmp_path).platforms) == ["a100"]


@pytest.mark.parametrize("text", ["", "{", '{"format": 1}', '{"format": 99, "features": 0}', "[]"])
def test_a_damaged_folder_is_a_users_error(tmp_path, text):
    with pytest.raises(UserError):
        KnowledgeBase.load(tmp_path / "nothing")
    (tmp_path / "knowledge_base.json").write_text(text)
    with pytest.raises(UserError):
        KnowledgeBase.load(tmp_path)
    with pytest.raises(UserError):
        filled().model("unknown")


def test_a_new_column_ranks_as_what_it_starts_from(inputs):
    base = filled()
    weights = base.weights("b200")
    column = ActiveColumn(SMALL, 0, weights, weights)
    expected = base.model("b200").predict(inputs)
    np.testing.assert_allclose(column.predict(inputs), expected, atol=1e-5)
    column.remember(inputs)  # states from memory give the same
    with torch.no_grad():
        kept = column.score(column.batch(inputs, np.arange(len(inputs)))).numpy()
    np.testing.assert_allclose(kept, expected, atol=1e-5)


def test_only_the_column_is_trained(inputs):
    base = filled()
    column = ActiveColumn(SMALL, 0, None, base.weights("b200"))
    before = column.predict(inputs)
    frozen = {k: v.clone() for k, v in column._frozen.state_dict().items()}
    optimizer = torch.optim.SGD(column.network.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        column.network.train()
        column.score(column.batch(inputs, np.arange(20))).square().mean().backward()
        optimizer.step()
    assert all(torch.equal(v, frozen[k]) for k, v in column._frozen.state_dict().items())
    assert column.network.adapters[0].up.weight.grad.abs().sum() > 0
    assert not np.allclose(before, column.predict(inputs))
