"""The one vocabulary that every log format's schedule primitives are written in, and what the numbers of a token mean.

Our reconstruction: the paper feeds "schedule primitives" to its model without saying how; TLP (arXiv 2211.03578) keeps
one-hot names and raw numbers of Ansor's steps. Here a token is self-contained: a split that follows another one carries the
factors it follows, a sampling instruction's decision sits on the instruction that uses it, and numbers are on a log scale.
"""

from __future__ import annotations

LENGTH = 48
"""Tokens a program is cut to. Ansor's longest program of the measured GPU logs has 37, MetaSchedule's (CPU) about 45."""

KINDS = (
    "padding", "other", "split", "follow_split", "follow_fused_split", "reorder", "fuse", "compute_at", "reverse_compute_at",
    "compute_inline", "compute_root", "cache_read_shared", "cache_read_local", "cache_write_shared", "cache_write_local", "rfactor",
    "storage_align", "tensorize", "blockize", "layout", "decompose", "pad", "unroll", "vectorize", "parallel", "vthread",
    "block_x", "block_y", "block_z", "thread_x", "thread_y", "thread_z", "pragma_unroll", "cooperative_fetch", "annotate",
    "unit_loop", "knob",
)  # fmt: skip
KIND = {name: i for i, name in enumerate(KINDS)}

NUMBERS = ("extent", "outer", "factor1", "factor2", "factor3", "factor4", "value", "role", "stage", "axis", "align")
"""Columns of a token's numbers. extent, outer (the outermost part of a split), factor1..4 (outer to inner): log2, 0 where absent
(a factor of 1). value: log2(1 + v) of what else the primitive decides (unroll depth, vector width, location, number of loops).
role: 1 spatial, -1 reduction, 0 does not apply. stage: log2(1 + index of the stage or block). axis: log2(1 + index of the loop).
align: how often 2 divides the innermost factor of a split, or the extent of a fused or annotated loop, at most 6: what warps,
vectors and cache lines care about.

A fused or annotated loop has its extent, as far as the steps before tell it: the threads of a block are the extent of the loop that
is bound to them."""
COLUMN = {name: i for i, name in enumerate(NUMBERS)}
EXTENT, OUTER, FACTOR, VALUE, ROLE, STAGE, AXIS, ALIGN = 0, 1, 2, 6, 7, 8, 9, 10
FACTORS = 4
SPATIAL, REDUCTION = 1.0, -1.0

VERSION = 2
"""Raise it when a token's meaning changes: caches and saved models of another version are not used."""
