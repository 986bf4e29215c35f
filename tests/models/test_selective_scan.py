"""The scans against each other, and the block against `transformers`' independent MambaMixer."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from transformers import MambaConfig
from transformers.models.mamba.modeling_mamba import MambaMixer

from tcl.errors import UserError
from tcl.models import selective_scan as scans
from tcl.models.selective_scan import MambaBlock, causal_conv1d, pack, selective_scan, unpack

TOLERANCE = 1e-4
SHAPES = [(1, 1, 16), (3, 1, 64), (2, 2, 32), (5, 7, 24), (4, 33, 64), (64, 40, 64), (2, 13, 144)]
NAMES = ["u", "delta", "A", "B", "C", "D", "z", "delta_bias"]


def mixer(d_model: int, **options: object) -> MambaMixer:
    config = MambaConfig(hidden_size=d_model, num_hidden_layers=1, **{"state_size": 16, "expand": 2, **options})
    return MambaMixer(config, 0)


def gradients(module: nn.Module, x: torch.Tensor, weight: torch.Tensor, **options: object) -> dict[str, torch.Tensor]:
    """The output and every gradient of sum(weight * module(x))."""
    x = x.clone().requires_grad_()
    module.zero_grad()
    y = module(x, **options)
    (y * weight).sum().backward()
    return {"y": y.detach(), "x": x.grad, **{name: p.grad.clone() for name, p in module.named_parameters()}}


def assert_agree(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> None:
    assert ours.keys() == theirs.keys()
    for name, expected in theirs.items():
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(ours[name], expected, rtol=0, atol=TOLERANCE * scale, msg=lambda m, n=name: f"{n}: {m}")


def scan_inputs(batch: int, length: int, channels: int, states: int, dtype: torch.dtype = torch.float32) -> list[torch.Tensor]:
    token = (batch, length)
    inputs = [
        torch.randn(*token, channels),
        torch.randn(*token, channels),
        -torch.rand(channels, states) * 4,
        torch.randn(*token, states),
        torch.randn(*token, states),
        torch.randn(channels),
        torch.randn(*token, channels),
        torch.randn(channels),
    ]
    return [x.to(dtype).requires_grad_() for x in inputs]


def call(inputs: list[torch.Tensor | None], **options: object) -> torch.Tensor:
    return selective_scan(*inputs[:7], delta_bias=inputs[7], **{"delta_softplus": True, **options})


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_block_agrees_with_transformers(shape: tuple[int, int, int], backend: str) -> None:
    torch.manual_seed(sum(shape))
    theirs, ours = mixer(shape[2]), MambaBlock(shape[2], backend=backend)
    for p in theirs.parameters():  # beyond the initial values: steps, decays and skips of every size
        p.data += 0.3 * torch.randn_like(p)
    ours.load_state_dict(theirs.state_dict())
    x, weight = torch.randn(shape), torch.randn(shape)
    assert_agree(gradients(ours, x, weight), gradients(theirs, x, weight))


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 6), st.integers(1, 50), st.integers(1, 40), st.integers(1, 20), st.integers(1, 5), st.integers(0, 99))
def test_block_agrees_on_random_shapes(batch: int, length: int, d_model: int, states: int, width: int, seed: int) -> None:
    torch.manual_seed(seed)
    theirs = mixer(d_model, state_size=states, conv_kernel=width, time_step_rank=2, use_bias=True, use_conv_bias=False)
    ours = MambaBlock(d_model, states, width, dt_rank=2, bias=True, conv_bias=False)
    ours.load_state_dict(theirs.state_dict())
    x, weight = torch.randn(batch, length, d_model), torch.randn(batch, length, d_model)
    assert_agree(gradients(ours, x, weight), gradients(theirs, x, weight))


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_padding_changes_nothing(backend: str) -> None:
    torch.manual_seed(0)
    theirs, ours = mixer(32), MambaBlock(32, backend=backend)
    ours.load_state_dict(theirs.state_dict())
    lengths = torch.tensor([9, 0, 1, 4, 9, 3])
    real = (torch.arange(9) < lengths[:, None])[..., None]
    x, weight = torch.randn(6, 9, 32), torch.randn(6, 9, 32) * real
    expected = gradients(theirs, x, weight, attention_mask=real[..., 0].long())
    expected["y"] = expected["y"] * real
    assert_agree(gradients(ours, x, weight, lengths=lengths), expected)
    garbage = torch.where(real, x, torch.full_like(x, float("nan")))
    torch.testing.assert_close(ours(garbage, lengths), ours(x, lengths), rtol=0, atol=0)
    for row, steps in enumerate(lengths.tolist()):
        alone = ours(x[row : row + 1, :steps])[0]
        torch.testing.assert_close(ours(x, lengths)[row, :steps], alone, rtol=0, atol=1e-6)
        assert not ours(x, lengths)[row, steps:].any()


def test_state_dicts_pass_both_ways() -> None:
    theirs, ours = mixer(48), MambaBlock(48)
    assert {n: p.shape for n, p in ours.state_dict().items()} == {n: p.shape for n, p in theirs.state_dict().items()}
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 5, 48)
    torch.testing.assert_close(ours(x), theirs(x), rtol=0, atol=TOLERANCE)


def test_initial_values() -> None:
    torch.manual_seed(0)
    block = MambaBlock(256)
    dt = nn.functional.softplus(block.dt_proj.bias)
    assert dt.min() >= 0.00099 and dt.max() <= 0.101
    # log-uniform: the logarithm's mean is in the middle of its range, its spread that of a uniform one
    assert dt.log().mean().item() == pytest.approx(torch.tensor([0.001, 0.1]).log().mean().item(), abs=0.25)
    assert dt.log().std().item() == pytest.approx(4.605 / 12**0.5, rel=0.1)
    torch.testing.assert_close(block.A_log.exp(), torch.arange(1.0, 17.0).expand(512, 16))
    assert block.dt_proj.weight.abs().max().item() == pytest.approx(0.25, rel=0.01)
    assert (block.D == 1).all()


@pytest.mark.parametrize("dropped", [[], ["z"], ["D"], ["delta_bias"], ["z", "D", "delta_bias"]], ids=str)
@pytest.mark.parametrize("softplus", [True, False])
def test_cpu_scan_agrees_with_reference(dropped: list[str], softplus: bool) -> None:
    torch.manual_seed(1)
    inputs = scan_inputs(3, 21, 150, 7)  # more channels than one tile
    if not softplus:
        inputs[1], inputs[7] = (x.detach().abs().requires_grad_() for x in (inputs[1], inputs[7]))
    kept = [None if name in dropped else x for name, x in zip(NAMES, inputs, strict=True)]
    weight = torch.randn(3, 21, 150)
    results = {}
    for backend in ("cpu", "reference"):
        y = call(kept, delta_softplus=softplus, backend=backend)
        grads = torch.autograd.grad((y * weight).sum(), [x for x in kept if x is not None])
        results[backend] = dict(zip(["y", *(n for n in NAMES if n not in dropped)], [y.detach(), *grads], strict=True))
    assert_agree(results["cpu"], results["reference"])


def test_gradcheck_of_the_scan() -> None:
    torch.manual_seed(2)
    for shape in ((2, 3, 3, 2), (1, 1, 2, 1)):
        inputs = scan_inputs(*shape, dtype=torch.float64)
        assert torch.autograd.gradcheck(lambda *xs: call(list(xs), backend="cpu"), inputs)
    packed = [x.detach().flatten(0, 1) if x.dim() == 3 else x.detach() for x in scan_inputs(1, 6, 3, 2, torch.float64)]
    offsets = torch.tensor([0, 2, 2, 6])
    inputs = [x.requires_grad_() for x in packed]
    assert torch.autograd.gradcheck(lambda *xs: call(list(xs), offsets=offsets, backend="cpu"), inputs)


def test_gradcheck_of_the_convolution() -> None:
    torch.manual_seed(3)
    x, w, b = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((7, 3), (3, 1, 4), (3,)))
    offsets = torch.tensor([0, 1, 7])
    assert torch.autograd.gradcheck(lambda *xs: causal_conv1d(*xs, offsets, backend="cpu"), (x, w, b))


def test_gradcheck_of_packing() -> None:
    x = torch.randn(3, 4, 2, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([4, 0, 2])
    assert torch.autograd.gradcheck(lambda x: pack(x, lengths)[0] ** 2, x)
    assert torch.autograd.gradcheck(lambda x: unpack(*pack(x, lengths), 5) ** 2, x)


def test_many_sequences_on_several_threads_give_the_same() -> None:
    """Ranges of unequal sequences, empty ones among them, and several callers at once."""
    torch.manual_seed(4)
    block = MambaBlock(16)
    x, weight = torch.randn(300, 30, 16), torch.randn(300, 30, 16)
    lengths = torch.randint(0, 31, (300,))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = gradients(block, x, weight, lengths=lengths)
        torch.set_num_threads(3)
        assert_agree(gradients(block, x, weight, lengths=lengths), expected)
        with ThreadPoolExecutor(4) as pool, torch.no_grad():
            for y in pool.map(lambda _: MambaBlock.forward(block, x, lengths).detach(), range(8)):
                torch.testing.assert_close(y, expected["y"])
    finally:
        torch.set_num_threads(before)


def test_extreme_values_stay_finite_and_nan_stays_nan() -> None:
    inputs = [x.detach() for x in scan_inputs(1, 6, 16, 4)]
    inputs[1][0, 0], inputs[1][0, 1], inputs[1][0, 2] = 60.0, -60.0, 2000.0
    inputs[6][0, 3], inputs[6][0, 4] = -200.0, 200.0
    expected = call(inputs, backend="reference")
    assert expected.isfinite().all()
    torch.testing.assert_close(call(inputs, backend="cpu"), expected, rtol=1e-4, atol=1e-4)
    inputs[0][0, 2, 5] = float("nan")
    nan = call(inputs, backend="cpu").isnan()
    assert nan[0, 2:, 5].all() and nan.sum() == 4


def test_odd_inputs() -> None:
    block = MambaBlock(8)
    assert block(torch.zeros(0, 5, 8)).shape == (0, 5, 8)
    assert block(torch.zeros(2, 0, 8)).shape == (2, 0, 8)
    assert block(torch.randn(2, 3, 8), torch.tensor([0, 0])).abs().sum() == 0
    strided = torch.randn(3, 8, 5).transpose(1, 2)
    torch.testing.assert_close(block(strided), block(strided.contiguous()))
    half = block.to(torch.bfloat16)(torch.randn(2, 3, 8, dtype=torch.bfloat16))
    assert half.dtype == torch.bfloat16 and half.isfinite().all()
    with pytest.raises(ValueError, match="expected"):
        block(torch.zeros(2, 3, 9))
    with pytest.raises(ValueError, match="lengths"):
        block(torch.zeros(2, 3, 8), torch.tensor([4, 1]))
    inputs = scan_inputs(2, 3, 4, 2)
    with pytest.raises(ValueError, match="B must be"):
        selective_scan(*inputs[:3], inputs[0], inputs[4])
    with pytest.raises(UserError, match="unknown scan backend"):
        call(inputs, backend="fpga")


def test_training_under_autocast_works() -> None:
    block, x = MambaBlock(16), torch.randn(4, 6, 16)
    with torch.autocast("cpu", torch.bfloat16):
        y = block(x)
    y.float().square().sum().backward()
    expected = block(x)
    torch.testing.assert_close(y.float(), expected, rtol=0.1, atol=0.02)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in block.parameters())


@pytest.mark.skipif(sys.platform == "win32", reason="needs file permissions of a POSIX system")
def test_works_where_no_cache_can_be_written(tmp_path: Path) -> None:
    """As in a container with a read-only file system: nothing is kept, and nothing fails."""
    root = Path(scans.__file__).parents[2]
    code = (
        "import numba.core.caching as c; c.CacheImpl._locator_classes = []\n"  # as if no folder could be written
        "import torch; from tcl.models.selective_scan import MambaBlock\n"
        "print(MambaBlock(4)(torch.randn(1, 2, 4)).shape)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "[1, 2, 4]" in done.stdout


def test_works_after_a_fork() -> None:
    """A data loader's worker inherits the thread pool without its threads."""
    code = (
        "import os, torch; from tcl.models.selective_scan import MambaBlock\n"
        "torch.set_num_threads(2); b = MambaBlock(4); x = torch.randn(64, 40, 4)\n"
        "from tcl.models import selective_scan_cpu as cpu\n"
        "from tcl.models.selective_scan import causal_conv1d, _even_offsets\n"
        "def conv(): return causal_conv1d(x.flatten(0, 1), torch.ones(4, 1, 2), None, _even_offsets(64, 40))\n"
        "y = conv(); assert cpu._pool is not None; pid = os.fork()\n"
        "if pid == 0: os._exit(0 if torch.equal(conv(), y) else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))"
    )
    root = Path(scans.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == "0", done.stdout + done.stderr


@pytest.mark.skipif(not scans.cuda_available(), reason="needs a CUDA device and mamba-ssm")
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_cuda_agrees_with_reference(shape: tuple[int, int, int]) -> None:
    torch.manual_seed(5)
    reference = MambaBlock(shape[2], backend="reference").cuda()
    cuda = MambaBlock(shape[2], backend="cuda").cuda()
    cuda.load_state_dict(reference.state_dict())
    x, weight = torch.randn(shape, device="cuda"), torch.randn(shape, device="cuda")
    assert_agree(gradients(cuda, x, weight), gradients(reference, x, weight))


@pytest.mark.skipif(scans.cuda_available(), reason="says what is missing where CUDA or mamba-ssm is missing")
def test_cuda_says_what_it_needs() -> None:
    with pytest.raises(UserError, match="mamba-ssm"):
        call(scan_inputs(1, 2, 3, 2), backend="cuda")
