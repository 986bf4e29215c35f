"""`tcl bench landscape`: what was measured is found again, and searches are told apart on it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tcl.bench.landscape import Landscape, run
from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.programs.types import Program
from tcl.progress import Progress
from tcl.tuning.design_space import sample_programs
from tcl.tuning.operators import operator_task
from tcl.tuning.targets import platform_for
from tcl.tuning.tune import tune

pytestmark = pytest.mark.tvm
SPEC = "dense:32,48,64"


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    out = tmp_path_factory.mktemp("landscape") / "out"
    tune(SPEC, trials=48, out=out, model="random", strategy="random", export=False, rivals=())
    return out


def test_what_was_measured_is_found_again(records):
    task = operator_task(SPEC)
    dataset = Dataset.open(records)
    frame = dataset.labels().merge(dataset.programs()[["program", "schedule"]], on="program")
    median = dataset.measurements().groupby("program")["latency_s"].median()
    landscape = Landscape.of(task, [records])
    told = landscape.latencies([Program(task.id, text) for text in frame["schedule"]])
    measured = median[frame["program"]].to_numpy()
    ran = np.isfinite(measured)
    assert landscape.programs == len(frame) and landscape.best_s == pytest.approx(np.nanmin(measured))
    # programs that differ in nothing the trees see share a leaf
    assert (
        np.isclose(told[ran], measured[ran], rtol=0.01).mean() > 0.8 and np.corrcoef(np.log(told[ran]), np.log(measured[ran]))[0, 1] > 0.98
    )
    new = np.setdiff1d([p.schedule for p in _drawn(task)], frame["schedule"])
    between = landscape.latencies([Program(task.id, text) for text in new])
    assert ((between >= told.min() * 0.999) & (between <= told.max() * 1.001)).all()


def test_methods_side_by_side(records):
    result = run(progress=Progress(), subject=SPEC, records=[str(records)], methods=("random/random", "decisions/xgb"), seeds=2, trials=40)
    assert [(r["method"], r["seed"]) for r in result["rows"]] == [
        ("random/random", 0),
        ("decisions/xgb", 0),
        ("random/random", 1),
        ("decisions/xgb", 1),
    ]
    for row in result["rows"]:
        assert row["at_32"] >= row["at_end"] >= 0.999 and "at_64" not in row
    again = run(progress=Progress(), subject=SPEC, records=[str(records)], methods=("decisions/xgb",), seeds=1, trials=40)
    assert again["rows"][0] == result["rows"][1]


def test_nothing_measured_is_said(records, tmp_path):
    with pytest.raises(UserError, match="one platform; these datasets have: none"):
        Landscape.of(operator_task("matmul:8,8,8"), [records])


def _drawn(task):
    return sample_programs(task, json.loads(platform_for("native").target), 24, seed=9)
