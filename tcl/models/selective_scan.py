"""The selective scan of Mamba, and the Mamba block around it, fast on a CPU.

Gu and Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces" (arXiv 2312.00752), algorithm 2 and
section 3.4. `MambaBlock` has the parameter names and shapes of `mamba_ssm.Mamba` and of `transformers`' `MambaMixer`: a
state dict of one loads into the others unchanged.

Sequences are laid out (batch, length, channels), or *packed*: (tokens, channels), one sequence behind the other without
padding, with their bounds in `offsets`. A model of several blocks packs once, runs `forward_packed` of each, and unpacks.

Mamba-2's matrix form (arXiv 2405.21060, section 6, the sequence as one chunk) was tried in its place and not kept. For one
block at (batch 512, length 40, d_model 64, d_state 16) on two threads, forward + backward took 83, 97 and 149 ms with heads of
64, 32 and 16 channels, this one 98 ms; inference 28, 34 and 48 ms against 28 ms, and on sequences of 10 to 40 steps 29, 35 and
48 ms against 21 ms. Only the form with the fewest decays was a little faster in training, and none in inference.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tcl.errors import UserError

BACKENDS = ("auto", "reference", "cpu", "cuda")


def selective_scan(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None = None,
    z: torch.Tensor | None = None,
    *,
    delta_bias: torch.Tensor | None = None,
    delta_softplus: bool = False,
    offsets: torch.Tensor | None = None,
    backend: str = "auto",
) -> torch.Tensor:
    """Run the state-space recurrence over each sequence (arXiv 2312.00752, equation 2a with the discretisation of 3.6).

    For each channel, with the state h = 0 before the first step and dt = softplus(delta + delta_bias):
    h = exp(dt * A) * h + dt * B * u; y = sum over states of (C * h), plus D * u; the result is y * silu(z).

    Args:
        u: (batch, length, channels), or packed (tokens, channels) together with `offsets`.
        delta: the step sizes, shaped like u.
        A: (channels, states), negative.
        B, C: (batch, length, states), or (tokens, states).
        D: (channels,), the skip connection; None for none.
        z: the gate, shaped like u; None for none.
        delta_bias: (channels,), added to delta; None for none.
        delta_softplus: take softplus of the step sizes; without it they must be positive.
        offsets: (sequences + 1,) int64, where each packed sequence starts, and last the number of tokens.
        backend: "reference" (a loop in torch), "cpu" (numba), "cuda" (`mamba_ssm`), or "auto": the fastest that can run.

    Returns:
        The output, shaped and typed like u.

    Raises:
        UserError: an unknown backend, or one that cannot run here.
        ValueError: shapes that do not fit.
    """
    backend = _choose(backend, u)
    _check(u, delta, A, B, C, D, z, delta_bias, offsets)
    if backend == "cpu":
        return _scan_cpu(u, delta, A, B, C, D, z, delta_bias, delta_softplus, offsets)
    scan = _scan_reference if backend == "reference" else _scan_cuda
    if u.dim() == 3:
        return scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
    assert offsets is not None
    u, delta, B, C = (unpack(x, offsets) for x in (u, delta, B, C))
    y = scan(u, delta, A, B, C, D, None if z is None else unpack(z, offsets), delta_bias, delta_softplus)
    return pack(y, offsets.diff())[0]


def pack(x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Drop the padding.

    Args:
        x: (batch, length, channels).
        lengths: (batch,) integers, how many leading steps of each sequence are real; 0 is allowed.

    Returns:
        The real steps, (tokens, channels), and offsets, (batch + 1,) int64 on the CPU.
    """
    lengths = lengths.to("cpu", torch.int64)
    if lengths.shape != x.shape[:1] or (len(lengths) and (lengths.min() < 0 or lengths.max() > x.shape[1])):
        raise ValueError(f"lengths must be {x.shape[0]} integers from 0 to {x.shape[1]}, got {tuple(lengths.shape)}")
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    rows = _rows(offsets, x.shape[1]).to(x.device)
    return _Pack.apply(x.reshape(-1, x.shape[-1]), rows), offsets


def unpack(packed: torch.Tensor, offsets: torch.Tensor, length: int | None = None) -> torch.Tensor:
    """Put the padding back, as zeros: the inverse of `pack`.

    Args:
        packed: (tokens, channels).
        offsets: (batch + 1,) int64.
        length: steps of the result; None for the longest sequence's, and at least one.

    Returns:
        (batch, length, channels).
    """
    if length is None:
        length = max(1, int(offsets.diff().max())) if len(offsets) > 1 else 1
    batch = len(offsets) - 1
    rows = _rows(offsets, length).to(packed.device)
    return _Unpack.apply(packed, rows, batch * length).view(batch, length, packed.shape[-1])


class MambaBlock(nn.Module):
    """The Mamba mixer: (batch, length, d_model) -> (batch, length, d_model), causal (arXiv 2312.00752, figure 3).

    Parameters, names and initialisation are those of `mamba_ssm.Mamba`.

    Args:
        d_model: channels in and out.
        d_state: states a channel.
        d_conv: width of the causal convolution.
        expand: inner channels per channel of d_model.
        dt_rank: rank of the step size's projection; "auto" is d_model / 16, rounded up.
        dt_min, dt_max: the range, in steps, that the initial step sizes are drawn from (log-uniform).
        dt_init_floor: the smallest initial step size.
        conv_bias, bias: whether the convolution, and the linear layers in and out, have a bias.
        backend: of the scan, see `selective_scan`.
    """

    def __init__(
        self,
        d_model: int,
        d_state: int = 16,
        d_conv: int = 4,
        expand: int = 2,
        dt_rank: int | str = "auto",
        *,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
        dt_init_floor: float = 1e-4,
        conv_bias: bool = True,
        bias: bool = False,
        backend: str = "auto",
    ) -> None:
        super().__init__()
        self.d_model, self.d_state, self.d_conv, self.backend = d_model, d_state, d_conv, backend
        self.d_inner = expand * d_model
        self.dt_rank = math.ceil(d_model / 16) if dt_rank == "auto" else int(dt_rank)
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=bias)
        self.conv1d = nn.Conv1d(self.d_inner, self.d_inner, d_conv, groups=self.d_inner, padding=d_conv - 1, bias=conv_bias)
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner, bias=True)
        self.A_log = nn.Parameter(torch.arange(1, d_state + 1, dtype=torch.float32).log().repeat(self.d_inner, 1))
        self.D = nn.Parameter(torch.ones(self.d_inner))
        self.out_proj = nn.Linear(self.d_inner, d_model, bias=bias)
        self._init_step_sizes(dt_min, dt_max, dt_init_floor)

    @torch.no_grad()
    def _init_step_sizes(self, dt_min: float, dt_max: float, floor: float) -> None:
        """Initial step sizes log-uniform in [dt_min, dt_max] at a zero input, and a projection that keeps their variance."""
        bound = self.dt_rank**-0.5
        self.dt_proj.weight.uniform_(-bound, bound)
        span = math.log(dt_max) - math.log(dt_min)
        dt = (torch.rand(self.d_inner) * span + math.log(dt_min)).exp().clamp(min=floor)
        self.dt_proj.bias.copy_(dt + torch.log(-torch.expm1(-dt)))  # the inverse of softplus

    def forward(self, x: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
        """Mix along the length.

        Args:
            x: (batch, length, d_model).
            lengths: (batch,) integers; steps from lengths[i] on are padding. They are not computed, and their output is 0.
        """
        if x.dim() != 3 or x.shape[-1] != self.d_model:
            raise ValueError(f"expected (batch, length, {self.d_model}), got {tuple(x.shape)}")
        if lengths is not None:
            packed, offsets = pack(x, lengths)
            return unpack(self.forward_packed(packed, offsets), offsets, x.shape[1])
        return self.forward_packed(x.reshape(-1, self.d_model), _even_offsets(*x.shape[:2])).view(x.shape)

    def forward_packed(self, x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
        """Mix packed sequences: (tokens, d_model) -> (tokens, d_model); `pack` makes x and offsets."""
        # The halves of in_proj one by one: two contiguous results, and no gradient to put together from two halves.
        W, b = self.in_proj.weight.chunk(2), [None, None] if self.in_proj.bias is None else self.in_proj.bias.chunk(2)
        u = causal_conv1d(F.linear(x, W[0], b[0]), self.conv1d.weight, self.conv1d.bias, offsets, backend=self.backend)
        z = F.linear(x, W[1], b[1])
        dt, B, C = self.x_proj(u).split([self.dt_rank, self.d_state, self.d_state], dim=-1)
        y = selective_scan(
            u,
            F.linear(dt, self.dt_proj.weight),
            -self.A_log.float().exp().to(self.A_log.dtype),
            B,
            C,
            self.D,
            z,
            delta_bias=self.dt_proj.bias,
            delta_softplus=True,
            offsets=offsets,
            backend=self.backend,
        )
        return self.out_proj(y)


def causal_conv1d(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, offsets: torch.Tensor, *, backend: str = "auto"
) -> torch.Tensor:
    """Depthwise causal convolution, then SiLU, of packed sequences.

    Args:
        x: (tokens, channels).
        weight: (channels, 1, width), as in `torch.nn.Conv1d`; bias: (channels,) or None.
        offsets: (sequences + 1,) int64.
        backend: as in `selective_scan`.
    """
    if _choose(backend, x) == "cpu":
        from tcl.models.selective_scan_cpu import CausalConv

        kind = _kernel_dtype(x)
        bias = torch.zeros(len(weight), dtype=kind) if bias is None else bias.to(kind)
        return CausalConv.apply(x.to(kind), weight[:, 0].to(kind), bias, offsets.numpy()).to(x.dtype)
    padded = unpack(x, offsets).transpose(1, 2)
    width = weight.shape[-1]
    y = F.silu(F.conv1d(F.pad(padded, (width - 1, 0)), weight, bias, groups=len(weight)))
    return pack(y.transpose(1, 2), offsets.diff())[0]


def cuda_available() -> bool:
    """Whether a CUDA device and `mamba_ssm` are there."""
    if not torch.cuda.is_available():
        return False
    try:
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # noqa: F401
    except ImportError:
        return False
    return True


def _choose(backend: str, x: torch.Tensor) -> str:
    if backend not in BACKENDS:
        raise UserError(f"unknown scan backend {backend!r}", hint=f"Use one of {', '.join(BACKENDS)}.")
    if backend == "auto":
        if x.is_cuda:
            return "cuda" if cuda_available() else "reference"
        return "cpu" if x.device.type == "cpu" else "reference"
    if backend == "cpu" and x.device.type != "cpu":
        raise UserError(f"the scan backend 'cpu' cannot work on {x.device}", hint="Use 'auto', or move the data.")
    if backend == "cuda" and not (x.is_cuda and cuda_available()):
        raise UserError(
            "the scan backend 'cuda' needs a CUDA device, data on it, and mamba-ssm",
            hint="pip install -r requirements-cuda.txt, or use 'auto'.",
        )
    return backend


def _check(u: Any, delta: Any, A: Any, B: Any, C: Any, D: Any, z: Any, delta_bias: Any, offsets: Any) -> None:
    if u.dim() not in (2, 3) or (u.dim() == 2) != (offsets is not None):
        raise ValueError("u must be (batch, length, channels), or (tokens, channels) together with offsets")
    channels, states = A.shape
    token = (*u.shape[:-1], states)
    wanted = {"u": (u, (*u.shape[:-1], channels)), "delta": (delta, u.shape), "B": (B, token), "C": (C, token)}
    wanted |= {"D": (D, (channels,)), "z": (z, u.shape), "delta_bias": (delta_bias, (channels,))}
    for name, (tensor, shape) in wanted.items():
        if tensor is not None and tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name} must be shaped {tuple(shape)}, got {tuple(tensor.shape)}")
    if offsets is not None and (len(offsets) < 1 or offsets[0] != 0 or offsets[-1] != len(u)):
        raise ValueError(f"offsets must run from 0 to the {len(u)} tokens of u")


def _scan_reference(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    delta_bias: torch.Tensor | None,
    delta_softplus: bool,
) -> torch.Tensor:
    """The definition, step by step; the other two are tested against it."""
    dt = delta if delta_bias is None else delta + delta_bias
    dt = F.softplus(dt) if delta_softplus else dt
    h = u.new_zeros(u.shape[0], *A.shape)
    ys = []
    for t in range(u.shape[1]):
        step = dt[:, t, :, None]
        h = torch.exp(step * A) * h + step * B[:, t, None, :] * u[:, t, :, None]
        ys.append((h * C[:, t, None, :]).sum(-1))
    y = torch.stack(ys, dim=1) if ys else torch.zeros_like(u)
    y = y if D is None else y + D * u
    return y if z is None else y * F.silu(z)


def _kernel_dtype(x: torch.Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _scan_cpu(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    delta_bias: torch.Tensor | None,
    delta_softplus: bool,
    offsets: torch.Tensor | None,
) -> torch.Tensor:
    from tcl.models.selective_scan_cpu import SelectiveScan

    shape, kind = u.shape, _kernel_dtype(u)
    if offsets is None:
        offsets = _even_offsets(*shape[:2])
        u, delta, B, C, z = (x if x is None else x.flatten(0, 1) for x in (u, delta, B, C, z))
    none = torch.zeros(A.shape[0], dtype=kind)
    tensors = (u, delta, A, B, C, none if D is None else D, z, none if delta_bias is None else delta_bias)
    same = [x if x is None else x.to(kind) for x in tensors]
    return SelectiveScan.apply(*same, delta_softplus, offsets.numpy()).view(shape).to(u.dtype)


def _scan_cuda(
    u: torch.Tensor,
    delta: torch.Tensor,
    A: torch.Tensor,
    B: torch.Tensor,
    C: torch.Tensor,
    D: torch.Tensor | None,
    z: torch.Tensor | None,
    delta_bias: torch.Tensor | None,
    delta_softplus: bool,
) -> torch.Tensor:
    """`mamba_ssm`'s kernel: it takes (batch, channels, length), and its parameters in float32."""
    from mamba_ssm.ops.selective_scan_interface import selective_scan_fn

    u_t, delta_t, B_t, C_t = (x.transpose(1, 2).contiguous() for x in (u, delta.to(u.dtype), B.to(u.dtype), C.to(u.dtype)))
    z_t = None if z is None else z.to(u.dtype).transpose(1, 2).contiguous()
    D, delta_bias = (None if x is None else x.float() for x in (D, delta_bias))
    return selective_scan_fn(u_t, delta_t, A.float(), B_t, C_t, D, z_t, delta_bias, delta_softplus).transpose(1, 2)


def _even_offsets(batch: int, length: int) -> torch.Tensor:
    return torch.arange(batch + 1, dtype=torch.int64) * length


def _rows(offsets: torch.Tensor, length: int) -> torch.Tensor:
    """For each packed token, its row among the batch * length padded ones."""
    lengths = offsets.diff().numpy()
    starts = np.arange(len(lengths), dtype=np.int64) * length - offsets[:-1].numpy()
    return torch.from_numpy(np.repeat(starts, lengths) + np.arange(int(offsets[-1]), dtype=np.int64))


class _Pack(torch.autograd.Function):
    """Take rows. Torch's own indexing would add the gradient row by row, because it cannot know that none repeats."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(rows)
        ctx.padded = len(x)
        return x.index_select(0, rows)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        (rows,) = ctx.saved_tensors
        return _Unpack.apply(grad, rows, ctx.padded), None


class _Unpack(torch.autograd.Function):
    """Put rows where they were, zeros elsewhere."""

    @staticmethod
    def forward(ctx: Any, packed: torch.Tensor, rows: torch.Tensor, padded: int) -> torch.Tensor:
        ctx.save_for_backward(rows)
        return packed.new_zeros(padded, packed.shape[-1]).index_copy_(0, rows, packed)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        return _Pack.apply(grad, rows), None, None
