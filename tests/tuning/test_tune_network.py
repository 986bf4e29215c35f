"""Whole networks: tuned task by task, compiled with the tuned schedules, run in the relax VM, compared with PyTorch."""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tcl.bench.tuning import networks_in_turns
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.types import parse_id
from tcl.progress import Progress
from tcl.tuning.networks import import_network, lower, network_tasks, torch_network
from tcl.tuning.targets import platform_for
from tcl.tuning.tune import tune

pytestmark = pytest.mark.tvm
NETWORK = "bert_tiny"


class Recorder(Progress):
    def __init__(self):
        self.events = []

    def event(self, kind, **data):
        json.dumps(data, allow_nan=False)
        self.events.append((kind, data))


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    folder = tmp_path_factory.mktemp("network")
    recorder = Recorder()
    trials = 2 * len(network_tasks(NETWORK)) - 3  # a few tasks get no second batch
    how = {"model": "xgb", "strategy": "decisions", "rivals": ("pytorch",), "progress": recorder}
    return recorder, trials, tune(NETWORK, trials=trials, out=folder / "out", **how)


def test_the_network_was_run_and_agrees_with_pytorch(tuned):
    _, trials, result = tuned
    assert result["trials"] <= trials and result["correct"] is True and result["max_error"] <= 1e-3
    assert result["best_latency_s"] > 0 and result["untuned_latency_s"] > 0
    assert result["pytorch_latency_s"] > 0 and len(result["latency_costs_s"]) >= 1
    assert result["tasks_unscheduled"] == []


def test_networks_are_timed_in_turns(tuned, tmp_path, monkeypatch):
    monkeypatch.setattr("tcl.bench.tuning.NETWORK_TURNS", 1)
    found = networks_in_turns({"tuned": Path(tuned[2]["dataset"]) / "export", "none": tmp_path})
    assert 0.1 < found["tuned"] / tuned[2]["best_latency_s"] < 10 and math.isnan(found["none"])


def test_every_task_has_a_row_and_the_first_batch_goes_round(tuned):
    recorder, _, result = tuned
    tasks = network_tasks(NETWORK)
    assert {r["name"] for r in result["tasks"]} == {t.name for t in tasks}
    assert all(r["trials"] >= 1 for r in result["tasks"])
    assert sum(r["share"] for r in result["tasks"]) == pytest.approx(1.0)
    assert {d["name"] for k, d in recorder.events if k == "task"} == {t.name for t in tasks}


def test_weights_and_latencies_of_the_tasks_are_those_of_the_network_and_of_the_records(tuned):
    """Not their sum against the network's latency: on a machine that stalls, one task's two trials say anything."""
    _, _, result = tuned
    assert sum(r["weight"] for r in result["tasks"]) == calls(NETWORK)
    costs = Dataset.open(result["dataset"]).measurements().groupby("program")["costs_s"].apply(lambda rows: np.concatenate(list(rows)))
    for row in result["tasks"]:
        assert row["best_latency_s"] == pytest.approx(statistics.median(costs[parse_id(row["best_program"])]))
    assert statistics.median(result["latency_costs_s"]) == result["best_latency_s"]


def calls(network: str) -> int:
    """How many times the lowered network calls a kernel."""
    from tvm import relax

    found = []
    lowered = lower(import_network(*torch_network(network)), json.loads(platform_for("native").target))
    for function in lowered.functions.values():
        if isinstance(function, relax.Function):
            relax.analysis.post_order_visit(function, found.append)
    return sum(isinstance(e, relax.Call) and getattr(e.op, "name", "") == "relax.call_tir" for e in found)


def test_the_exported_network_runs_in_a_fresh_process(tuned):
    _, _, result = tuned
    done = subprocess.run([sys.executable, result["export"]["snippet"]], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "largest relative error" in done.stdout


def test_stock_tvm_finds_every_task_in_the_database(tuned):
    """MetaScheduleApplyDatabase, as TVM's own compile_relax uses it, schedules every function of the network."""
    import tvm
    from tvm import relax
    from tvm.s_tir.meta_schedule.database import JSONDatabase

    _, _, result = tuned
    target = json.loads(platform_for("native").target)
    lowered = lower(import_network(*torch_network(NETWORK)), target)
    with tvm.target.Target(target), JSONDatabase(work_dir=result["export"]["folder"]):
        applied = relax.transform.MetaScheduleApplyDatabase(enable_warning=True)(lowered)
    functions = [f for _, f in applied.functions_items() if isinstance(f, tvm.tirx.PrimFunc)]
    scheduled = [f for f in functions if f.attrs is not None and "tirx.is_scheduled" in f.attrs]
    assert len(functions) > 5 and len(scheduled) == len(functions)


def test_an_exported_model_by_its_path(tmp_path):
    import torch

    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 14 * 14, 10)).eval()
    path = tmp_path / "small.pt2"
    torch.export.save(torch.export.export(model, (torch.randn(1, 3, 16, 16),)), path)
    result = tune(str(path), trials=8, out=tmp_path / "out", model="random", strategy="random")
    assert result["correct"] is True and result["best_latency_s"] > 0 and result["tasks_unscheduled"] == []
    (tmp_path / "broken.pt2").write_bytes(b"PK nothing")
    with pytest.raises(UserError, match=r"not a program that torch\.export\.save wrote"):
        tune(str(tmp_path / "broken.pt2"), trials=8, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()


def test_an_onnx_file_by_its_path(tmp_path):
    """A branch, grouped convolution and a free batch; what ONNX Runtime computes is what the tuned network must compute."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((8, 2, 3, 3)).astype(np.float32), "w")
    dense = numpy_helper.from_array(rng.standard_normal((8 * 8 * 8, 5)).astype(np.float32), "d")
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], group=2),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Add", ["r", "c"], ["a"]),
        helper.make_node("Flatten", ["a"], ["f"]),
        helper.make_node("MatMul", ["f", "d"], ["y"]),
    ]
    shape = ["batch", 4, 8, 8]
    graph = helper.make_graph(
        nodes, "small", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 5])], [weight, dense],
    )  # fmt: skip
    path = tmp_path / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    result = tune(str(path), trials=8, out=tmp_path / "out", model="random", strategy="random", rivals=("onnxruntime", "pytorch"))
    assert result["correct"] is True and result["best_latency_s"] > 0 and result["tasks_unscheduled"] == []
    assert result["onnxruntime_latency_s"] > 0 and result["pytorch_latency_s"] is None
    assert "no PyTorch module" in result["rivals_failed"]["pytorch"]
    assert any(r["operator"] == "conv2d" for r in result["tasks"])
    (tmp_path / "broken.onnx").write_bytes(b"nothing")
    with pytest.raises(UserError, match="not an ONNX model"):
        tune(str(tmp_path / "broken.onnx"), trials=8, out=tmp_path / "other")
    graph.input[0].type.tensor_type.shape.dim[2].dim_param = "height"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    with pytest.raises(UserError, match=r"dimension 2 of its input x is free \(height\)"):
        tune(str(path), trials=8, out=tmp_path / "other")
    assert not (tmp_path / "other").exists()
