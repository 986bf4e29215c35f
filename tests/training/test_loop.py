"""The loop: early stopping, exact resume, pause and stop, events, several processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tcl.errors import UserError
from tcl.models.base import make
from tcl.progress import Progress, Stopped
from tcl.training.loop import Trainer
from tests.models.test_models import examples

HOW = {"lists": 2, "list_size": 16, "epochs": 4}


class Recorder(Progress):
    def __init__(self, stop_after: int | None = None) -> None:
        self.events: list[tuple[str, dict]] = []
        self.stop_after = stop_after

    def event(self, kind, **data):
        self.events.append((kind, data))

    def check(self):
        if self.stop_after is not None and len(self.events) >= self.stop_after:
            raise Stopped


def test_every_epoch_is_an_event_of_plain_json_with_what_a_view_draws():
    seen = Recorder()
    result = make("mlp").fit(examples(), examples(seed=1), Trainer(progress=seen, **HOW))
    assert [kind for kind, _ in seen.events] == ["epoch"] * 4
    json.dumps([data for _, data in seen.events])
    assert {"epoch", "epochs", "loss", "valid_top1", "valid_top5", "valid_pairwise", "train_s", "learning_rate"} <= seen.events[0][1].keys()
    assert result["epochs"] == 4 and seen.events[-1][1]["loss"] < seen.events[0][1]["loss"]


@pytest.mark.parametrize("name", ["mlp", "mamba"])
def test_stopped_and_resumed_it_ends_where_an_unbroken_run_ends(name, tmp_path):
    train, valid = examples(tasks=2, n=32), examples(seed=1, tasks=2, n=32)
    whole = make(name)
    whole.fit(train, valid, Trainer(seed=3, **HOW))
    broken = make(name)
    first = broken.fit(train, valid, Trainer(seed=3, checkpoint=tmp_path / "c", progress=Recorder(stop_after=2), **HOW))
    assert first["stopped"] and first["epochs"] == 2
    resumed = make(name)
    result = resumed.fit(train, valid, Trainer(seed=3, checkpoint=tmp_path / "c", **HOW))
    assert not result["stopped"] and result["epochs"] == 4
    assert np.array_equal(resumed.predict(valid.inputs), whole.predict(valid.inputs))
    assert len(list((tmp_path / "c").glob("*.safetensors"))) == 1


def test_a_checkpoint_of_another_training_is_refused(tmp_path):
    make("mlp").fit(examples(), None, Trainer(checkpoint=tmp_path, **{**HOW, "epochs": 1}))
    with pytest.raises(UserError, match="another training"):
        make("mlp").fit(examples(seed=2), None, Trainer(checkpoint=tmp_path, **{**HOW, "epochs": 1}))
    (tmp_path / "checkpoint.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        make("mlp").fit(examples(), None, Trainer(checkpoint=tmp_path, **HOW))


def test_stops_early_and_keeps_the_best_epoch():
    train, valid = examples(), examples(seed=1)
    model = make("mlp")
    result = model.fit(train, valid, Trainer(epochs=60, patience=2, lists=2, list_size=16, learning_rate=0.01))
    scores = [h["valid_score"] for h in result["history"]]
    assert result["epochs"] < 60 and int(np.argmax(scores)) + 1 == result["best_epoch"]
    found = valid.truth.evaluate(model.predict(valid.inputs))
    assert found["pairwise"] == pytest.approx(result["history"][result["best_epoch"] - 1]["valid_pairwise"])


def test_lists_too_small_or_a_step_without_order_do_no_harm():
    data = examples(tasks=1, n=3, failures=0.0)
    assert make("mlp").fit(data, None, Trainer(epochs=2, lists=1, list_size=2))["epochs"] == 2


@pytest.mark.parametrize("loss", ["lambda_rank", "listnet", "mse"])
def test_every_loss_trains(loss):
    fresh = examples(seed=5, failures=0.0)
    model = make("mlp")
    model.fit(examples(), None, Trainer(epochs=8, lists=2, list_size=24, loss=loss, compare_across=loss == "mse"))
    assert fresh.truth.evaluate(model.predict(fresh.inputs))["pairwise"] > 0.7


def test_no_cuda_is_a_users_error():
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA GPU")
    with pytest.raises(UserError, match="CUDA"):
        make("mlp").fit(examples(), None, Trainer(device="cuda"))


def test_two_processes_train_one_model():
    """DDP as torchrun starts it, on the CPU (gloo): both end with the same weights, and the model has learnt."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = (
        "from tests.models.test_models import examples\nfrom tcl.models.base import make\nfrom tcl.training.loop import Trainer\n"
        "m = make('mlp'); m.fit(examples(), None, Trainer(epochs=8, lists=4, list_size=16, device='cpu'))\n"
        "f = examples(seed=5, failures=0.0); p = m.predict(f.inputs)\nprint(f.truth.evaluate(p)['pairwise'], float(p.sum()))\n"
    )
    env = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    root = Path(__file__).parents[2]
    ranks = [{**env, "RANK": str(r), "LOCAL_RANK": str(r)} for r in range(2)]
    jobs = [
        subprocess.Popen([sys.executable, "-c", code], cwd=root, env=ranks[r], stdout=subprocess.PIPE, text=True)
        for r in range(2)
    ]  # fmt: skip
    answers = [job.communicate(timeout=240)[0].split() for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0]
    assert float(answers[0][0]) > 0.75 and answers[0] == answers[1]
