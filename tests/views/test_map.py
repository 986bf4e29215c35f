"""The map: reproducible, stored, honest about how much it shows, and good enough to be believed."""

from __future__ import annotations

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.features.map import EVERYTHING, load_map, make_map, nearest, network_scope, scope_programs, task_scope, trustworthiness
from tcl.programs.dataset import Dataset
from tcl.progress import Progress, Stopped
from tests.views.conftest import fill


def test_same_seed_same_map_and_it_is_kept(dataset):
    made = make_map(dataset, seed=3)
    stored = load_map(Dataset.open(dataset.path))
    assert stored.coordinates.equals(made.coordinates) and stored.about == made.about
    assert make_map(dataset, seed=3).coordinates.equals(made.coordinates)
    assert (made.about["n"], made.about["of"]) == (len(dataset.programs(["program"])),) * 2


def test_neighbours_on_the_map_are_neighbours_in_truth(dataset):
    assert make_map(dataset).about["trustworthiness"] > 0.9
    rng = np.random.default_rng(0)
    points = rng.normal(size=(300, 8))
    assert trustworthiness(points, rng.normal(size=(300, 2)))[0] < 0.6


def test_scopes(dataset):
    network = scope_programs(dataset, network_scope("net-a"))
    assert network["task"].nunique() == 2
    task = int(dataset.tasks()["task"][0])
    assert set(scope_programs(dataset, task_scope(task))["task"]) == {task}
    assert make_map(dataset, task_scope(task)).about["n"] == len(scope_programs(dataset, task_scope(task)))
    for wrong in ("network:none", "task:0000000000000000", "everything", "task:"):
        with pytest.raises(UserError):
            scope_programs(dataset, wrong)


def test_sampled_map_says_n_of_m(dataset):
    made = make_map(dataset, limit=50)
    assert made.about["n"] == 50 == len(made.coordinates)
    assert made.about["of"] == len(dataset.programs(["program"]))


@pytest.mark.parametrize("n", [1, 2, 5, 29, 31])
def test_few_programs(tmp_path, n):
    dataset = fill(tmp_path / "few", programs_a_task=n, tasks=1)
    made = make_map(dataset)
    assert np.isfinite(made.coordinates[["x", "y"]].to_numpy()).all()


def test_equal_programs_do_not_break_it():
    rows, distances = nearest(np.zeros((40, 3), dtype=np.float32), 5)
    assert rows.shape == distances.shape == (40, 5)


def test_nothing_to_map(tmp_path):
    with pytest.raises(UserError, match="no programs"):
        make_map(Dataset.create(tmp_path / "empty"))


def test_can_be_stopped(dataset):
    class Stop(Progress):
        def check(self):
            raise Stopped

    with pytest.raises(Stopped):
        make_map(dataset, progress=Stop())
    assert load_map(dataset) is None


def test_where_the_dataset_takes_no_map_the_workspace_keeps_it(dataset):
    (dataset.path / "maps").write_text("no folder can be made here, not even by root")
    make_map(dataset)
    assert load_map(dataset, EVERYTHING) is not None


def test_a_thinned_scope_is_a_part_that_lies_on_the_map(dataset):
    """Fewer of a scope's programs, always the same, in the dataset's order, with the whole scope's map and labels."""
    from tcl.features.map import thinned
    from tcl.views.explore import explore_frame

    everything = scope_programs(dataset, EVERYTHING)
    part = scope_programs(dataset, thinned(EVERYTHING, 20))
    assert len(part) == 20 and everything["program"].isin(part["program"]).sum() == 20
    assert part["program"].tolist() == everything["program"][everything["program"].isin(part["program"])].tolist()
    assert scope_programs(dataset, thinned(EVERYTHING, 10))["program"].isin(part["program"]).all()
    assert len(scope_programs(dataset, thinned(EVERYTHING, 10**9))) == len(everything)
    make_map(dataset, limit=20)
    stored = load_map(dataset, thinned(EVERYTHING, 10))
    assert part["program"].isin(stored.coordinates["program"]).all()
    of_all = explore_frame(dataset, EVERYTHING, "avx2", stored).set_index("program")
    thin = explore_frame(dataset, thinned(EVERYTHING, 10), "avx2", stored).set_index("program")
    for column in ("x", "label", "latency_s", "platforms", "error"):
        assert thin[column].astype(str).tolist() == of_all.loc[thin.index, column].astype(str).tolist()
