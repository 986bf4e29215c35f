"""`tcl bench scan`: our Mamba block on this processor, beside `transformers`' MambaMixer and a transformer of TLP's size.

All methods take turns within one run, so that whatever else the machine does hits them alike; a row is one method in one
setting and holds the median over the turns. Every method is checked to compute the same before it is timed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

from tcl.bench import report
from tcl.machine import quiet
from tcl.progress import Progress

BATCH, LENGTH, D_MODEL, D_STATE, EXPAND = 512, 40, 64, 16, 2
THREADS = 2
TARGET = 20.0
TLP_WIDTH, TLP_HEADS, TLP_HIDDEN, TLP_LAYERS = 168, 8, 330, 3
"""A TransformerEncoder of 677 k parameters: as many as TLP's (arXiv 2211.03578), the shape is our reconstruction."""


def run(seeds: int = 3, progress: Progress | None = None) -> dict[str, Any]:
    """Time forward + backward, and inference, at (batch 512, length 40, d_model 64, d_state 16, expand 2) on 2 threads.

    Args:
        seeds: how often everything is repeated with other weights and inputs.
        progress: hears how far it is.

    Returns:
        {"bench", "rows", "goals", "machine"}; times in seconds in keys that end in `_s`, `relative` against MambaMixer's median
        in the same row group, `programs_per_s` for sequences.
    """
    import torch

    progress = progress or Progress()
    threads = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    try:
        rows = [row for seed in range(seeds) for row in _one_seed(seed, seeds, progress)]
    finally:
        torch.set_num_threads(threads)
    ratio = _ratio(rows, "train", "mamba-cpu", "transformers")
    goals = [report.goal("forward + backward, times faster than MambaMixer", TARGET, ratio)]
    return {"bench": "scan", "rows": rows, "goals": goals, "machine": {**report.machine(), "threads": THREADS}}


def _one_seed(seed: int, seeds: int, progress: Progress) -> list[dict[str, Any]]:
    import torch

    torch.manual_seed(seed)
    x = torch.randn(BATCH, LENGTH, D_MODEL, requires_grad=True)
    grad = torch.randn(BATCH, LENGTH, D_MODEL)
    lengths = torch.randint(LENGTH // 4, LENGTH + 1, (BATCH,))
    models = _models()
    _assert_equal(models, x[:32].detach())
    tlp_x = torch.randn(BATCH, LENGTH, TLP_WIDTH, requires_grad=True)
    tlp_grad = torch.randn(BATCH, LENGTH, TLP_WIDTH)

    def train(name: str) -> Callable[[], None]:
        model = models[name]
        inputs, weight = (tlp_x, tlp_grad) if name == "tlp-size" else (x, grad)
        return lambda: model(inputs).backward(weight)

    def infer(name: str, *more: Any) -> Callable[[], None]:
        model = models[name]
        inputs = tlp_x if name == "tlp-size" else x

        def call() -> None:
            with torch.no_grad():
                model(inputs, *more)

        return call

    # (name, setting, call, turns): the slow ones get fewer, their spread is small beside the ratio
    slow, fast = 2, 7
    cases = [
        ("mamba-cpu", "train", train("mamba-cpu"), fast),
        ("transformers", "train", train("transformers"), slow),
        ("mamba-reference", "train", train("mamba-reference"), slow),
        ("tlp-size", "train", train("tlp-size"), fast),
        ("mamba-cpu", "inference", infer("mamba-cpu"), fast),
        ("mamba-cpu", "inference-ragged", infer("mamba-cpu", lengths), fast),
        ("transformers", "inference", infer("transformers"), slow),
        ("mamba-reference", "inference", infer("mamba-reference"), slow),
        ("tlp-size", "inference", infer("tlp-size"), fast),
    ]
    times: dict[tuple[str, str], list[float]] = {case[:2]: [] for case in cases}
    with quiet():
        for name, _, call, _ in cases:
            if name.startswith(("mamba-cpu", "tlp")):
                call()  # the first call compiles, or reads the compiled code
        for turn in range(fast):
            for name, setting, call, turns in cases:
                if turn < turns:
                    progress.check()
                    start = time.perf_counter()
                    call()
                    times[name, setting].append(time.perf_counter() - start)
            progress.step(seed * fast + turn + 1, seeds * fast, "scan benchmark, turn")
    rows = []
    for name, setting, _, _ in cases:
        taken = times[name, setting]
        median = statistics.median(taken)
        base = times["transformers", setting.split("-")[0]]
        row = {
            "method": name,
            "setting": setting,
            "seed": seed,
            "median_s": median,
            "min_s": min(taken),
            "max_s": max(taken),
            "turns": len(taken),
            "relative": statistics.median(base) / median,
            "programs_per_s": BATCH / median,
            "parameters": sum(p.numel() for p in models[name].parameters()),
        }
        rows.append(row)
        progress.event("bench_row", bench="scan", **row)
    return rows


def _models() -> dict[str, Any]:
    """One block of each kind, the three Mambas with the same weights."""
    import logging

    from torch import nn
    from transformers import MambaConfig
    from transformers.models.mamba.modeling_mamba import MambaMixer

    from tcl.models.selective_scan import MambaBlock

    logging.getLogger("transformers").setLevel(logging.ERROR)  # it warns that its CUDA kernels are missing: we know
    config = MambaConfig(hidden_size=D_MODEL, state_size=D_STATE, expand=EXPAND, num_hidden_layers=1)
    ours = MambaBlock(D_MODEL, D_STATE, expand=EXPAND, backend="cpu")
    reference = MambaBlock(D_MODEL, D_STATE, expand=EXPAND, backend="reference")
    theirs = MambaMixer(config, 0)
    reference.load_state_dict(ours.state_dict())
    theirs.load_state_dict(ours.state_dict())
    layer = nn.TransformerEncoderLayer(TLP_WIDTH, TLP_HEADS, TLP_HIDDEN, dropout=0.0, batch_first=True)
    tlp = nn.TransformerEncoder(layer, TLP_LAYERS)
    return {"mamba-cpu": ours, "transformers": theirs, "mamba-reference": reference, "tlp-size": tlp}


def _assert_equal(models: dict[str, Any], x: Any) -> None:
    import torch

    with torch.no_grad():
        expected = models["transformers"](x)
        for name in ("mamba-cpu", "mamba-reference"):
            torch.testing.assert_close(models[name](x), expected, rtol=0, atol=1e-4)


def _ratio(rows: list[dict[str, Any]], setting: str, method: str, baseline: str) -> float:
    """The median over the seeds of the ratio of medians within a seed."""
    median = {(r["method"], r["seed"]): r["median_s"] for r in rows if r["setting"] == setting}
    seeds = {seed for _, seed in median}
    return statistics.median(median[baseline, seed] / median[method, seed] for seed in seeds)
