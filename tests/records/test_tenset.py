"""TenSet's network_info tells networks and weights; its pickles are never loaded."""

import pickle
import sys
import types
import zipfile

import numpy as np
import pytest

from tcl.programs.dataset import Dataset
from tcl.records.importer import import_logs
from tcl.records.tenset_networks import find_networks, network_name
from tests.records.samples import ansor, program, write

KEYS = [["0bcb5ed2d0ed2f8c7d6d8b0a7ce1a6dd", 4, 16, 14, 14], ["1bcb5ed2d0ed2f8c7d6d8b0a7ce1a6dd", 1, 8]]
NAME = "((resnet_50,[(1,3,224,224)]),llvm).task.pkl"


def pickled(weights) -> bytes:
    """A pickle shaped as TenSet's: search tasks of a class that only exists where TVM is, and their weights."""
    import json

    module = types.ModuleType("tvm_auto_scheduler_search_task")

    class SearchTask:
        def __init__(self, key):
            self.workload_key, self.hardware_params, self.target = json.dumps(key), [4, 64, 64], "llvm"

    SearchTask.__module__, SearchTask.__qualname__ = module.__name__, "SearchTask"
    module.SearchTask = SearchTask
    sys.modules[module.__name__] = module
    try:
        return pickle.dumps(([SearchTask(k) for k in KEYS], weights))
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("weights", [[3, 1], np.array([3, 1])])
@pytest.mark.parametrize("zipped", [False, True])
def test_networks_and_weights_are_found(tmp_path, weights, zipped):
    folder = tmp_path / "dataset"
    write(folder / "measure_records" / "e5" / "([0bcb,4],llvm).json", *[ansor(key=k, steps=program(i)) for i, k in enumerate(KEYS)])
    (folder / "network_info").mkdir()
    (folder / "network_info" / NAME).write_bytes(pickled(weights))
    (folder / "network_info" / "all_tasks.pkl").write_bytes(pickle.dumps([1]))
    given = folder
    if zipped:
        given = tmp_path / "dataset_v3.3.zip"
        with zipfile.ZipFile(given, "w") as archive:
            for path in folder.rglob("*"):
                archive.write(path, path.relative_to(tmp_path))
    summary = import_logs([given], tmp_path / "d", "e5")
    tasks = {t.workload[2:3]: t for t in Dataset.open(tmp_path / "d").task_list()}
    uses = [(u.network, u.weight) for digit in ("0", "1") for u in tasks[digit].networks]
    assert uses == [("resnet_50 1x3x224x224", 3.0), ("resnet_50 1x3x224x224", 1.0)]
    assert summary.imported == 2 and sum("pickle" in reason for reason in summary.skipped.values()) == 2


def test_a_hostile_or_damaged_pickle_does_nothing(tmp_path):
    from tcl.records.sources import Source

    path = tmp_path / NAME
    for raw in (b"\x80\x04cos\nsystem\n(S'touch evil'\ntR.", b"\x80\x04\x8c\xff", pickled([3, 1])[:60], b""):
        path.write_bytes(raw)
        assert find_networks([Source(path, str(path), len(raw))]) == {}
    assert not (tmp_path / "evil").exists()


def test_names():
    assert network_name("x/" + NAME) == "resnet_50 1x3x224x224"
    assert network_name("((bert_base,[(1,128)]),cuda).task.pkl") == "bert_base 1x128"
    assert network_name("odd.task.pkl") == "odd"
