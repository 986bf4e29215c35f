"""Splits: nothing leaks, everything is dealt, a saved split reads back the same."""

import numpy as np
import pandas as pd
import pytest

from tcl.errors import UserError
from tcl.programs.splits import PARTS, Split, split_by_network, split_by_platform, split_by_task, split_within_task
from tcl.programs.types import NetworkUse, Task


def frame(tasks: list[Task]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "task": np.array([t.id for t in tasks], np.int64),
            "operator": [t.operator for t in tasks],
            "group": np.array([t.group for t in tasks], np.int64),
            "networks": [{u.network: u.weight for u in t.networks} for t in tasks],
        }
    )


def make(operator: str, i: int, j: int = 0, networks: tuple[str, ...] = ()) -> Task:
    uses = tuple(NetworkUse(n, 1.0) for n in networks)
    return Task(f"{operator} {i}", operator, "ansor", f'["{operator}",{i},{j}]', (i + 1, 7, 3), networks=uses)


TASKS = frame([make(op, i, j) for op, n in (("conv2d", 30), ("matmul", 3), ("softmax", 1)) for i in range(n) for j in range(2)])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_by_task_keeps_near_duplicates_together_and_all_operators_everywhere(seed):
    split = split_by_task(TASKS, seed)
    parts = split.parts(TASKS)
    assert set(parts) == set(PARTS)
    together = TASKS.assign(part=parts).groupby("group")["part"].nunique()
    assert (together == 1).all() and (TASKS.groupby("group").size() == 2).all()
    by_operator = TASKS.assign(part=parts).groupby("operator")["part"].unique().map(set)
    assert by_operator["conv2d"] == by_operator["matmul"] == set(PARTS) and by_operator["softmax"] == {"train"}
    assert split.count()["test"] == pytest.approx(0.2 * len(TASKS), abs=3)


def test_seeds_differ_and_repeat():
    a, b, c = (split_by_task(TASKS, s).sides for s in (0, 0, 1))
    assert a == b and a != c


def test_round_trip(tmp_path):
    for split in (split_by_task(TASKS, 3), split_by_platform(["a", "b"], ["b"]), split_within_task(4, (0.5, 0.0, 0.5))):
        split.save(tmp_path / "s" / "split.json")
        again = Split.load(tmp_path / "s" / "split.json")
        assert (again.kind, again.seed, again.fractions, again.sides) == (split.kind, split.seed, split.fractions, split.sides)


def test_unknown_tasks_are_of_no_part():
    rows = pd.DataFrame({"task": [TASKS["task"][0], 12345]})
    assert split_by_task(TASKS).parts(rows)[1] == ""


def test_by_network_holds_out_shared_and_near_duplicate_tasks():
    tasks = frame(
        [
            make("conv2d", 0, 0, ("resnet",)),
            make("conv2d", 1, 0, ("resnet", "bert")),
            make("conv2d", 0, 1, ("bert",)),
            make("conv2d", 2, 0, ("vgg",)),
            make("conv2d", 3),
        ]
    )
    split = split_by_network(tasks, ["bert"], fractions=(0.8, 0.0, 0.2))
    assert split.parts(tasks).tolist() == ["test", "test", "test", "train", "train"]
    drawn = split_by_network(tasks, seed=1)
    assert drawn.about["test_networks"] and not set(drawn.about["test_networks"]) & set(drawn.about["valid_networks"])


def test_within_task_is_stable_and_of_the_right_size():
    rows = pd.DataFrame({"program": np.random.default_rng(0).integers(-(2**63), 2**63 - 1, 20_000)})
    split = split_within_task(seed=5)
    parts = split.parts(rows)
    assert [np.mean(parts == p) for p in PARTS] == pytest.approx([0.7, 0.1, 0.2], abs=0.01)
    assert (split.parts(rows[:100]) == parts[:100]).all()
    assert np.mean(split_within_task(seed=6).parts(rows) == parts) < 0.8


def test_mistakes_are_told():
    with pytest.raises(UserError, match="no platform c"):
        split_by_platform(["a", "b"], ["c"])
    with pytest.raises(UserError, match="at least one platform to test on"):
        split_by_platform(["a", "b"], ["a", "b"])
    with pytest.raises(UserError, match="at least two networks"):
        split_by_network(TASKS)
    with pytest.raises(UserError, match="add up to 1"):
        split_by_task(TASKS, fractions=(0.5, 0.1, 0.1))


def test_load_refuses_what_is_not_a_split(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(UserError, match="not a split"):
        Split.load(tmp_path / "x.json")
    with pytest.raises(UserError, match="cannot be read"):
        Split.load(tmp_path / "none.json")
