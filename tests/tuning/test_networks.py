"""Networks -> tasks."""

from __future__ import annotations

import pytest

from tcl.errors import UserError
from tcl.tuning.networks import network_tasks, torch_network

pytestmark = pytest.mark.tvm


@pytest.fixture(autouse=True)
def own_workspace(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path))


def test_bert_tiny(monkeypatch):
    tasks = network_tasks("bert_tiny")
    weights = {t.name: t.networks[0].weight for t in tasks}
    assert len({t.id for t in tasks}) == len(tasks)
    # per layer: query, key, value and attention output, 128x128 each
    assert weights["matmul 128x128 128x128 -> 128x128 +add"] == 8
    assert weights["matmul 128x128 128x512 -> 128x512 +add"] == 2
    assert {t.operator for t in tasks} >= {"matmul", "batch_matmul", "softmax", "layer_norm", "elementwise"}
    monkeypatch.delattr("tcl.tuning.networks.extract")  # from the cache
    assert network_tasks("bert_tiny") == tasks


def test_resnet18():
    tasks = network_tasks("resnet18")
    convolutions = [t for t in tasks if t.operator == "conv2d"]
    assert sum(t.networks[0].weight for t in convolutions) == 20
    # 1.8 GMAC, the figure of the ResNet paper's table 1
    total = sum(t.flops * t.networks[0].weight for t in convolutions)
    assert total == pytest.approx(3.6e9, rel=0.02)
    assert all("relu" in t.name or t.name.endswith("+add") for t in convolutions)  # batch normalisation is folded


def test_unknown_network():
    with pytest.raises(UserError, match="not a network"):
        torch_network("resnet19")
