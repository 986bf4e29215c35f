"""What a worker needs, imported once, by the process that all workers are forked from."""

from __future__ import annotations

import gc
import warnings

from tcl.tuning.lean_tvm import load_tvm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    load_tvm()
    from tvm.s_tir.meta_schedule import mutator, postproc, search_strategy, space_generator  # noqa: F401

    import tcl.tuning.design_space
    import tcl.tuning.fast_math
    import tcl.tuning.transposed
    import tcl.tuning.worker
    import tcl.tuning.workload  # noqa: F401
gc.freeze()  # what is never collected is never copied
