"""CUDA up to compilation: random candidates, limits of the device, kernels, PTX. No GPU is needed, or used."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import tvm

from tcl.errors import UserError
from tcl.features.flat import flat_of
from tcl.tuning.cuda import CompileFailed, compile_ptx, missing, resources, source
from tcl.tuning.design_space import Applier, module, sample_programs
from tcl.tuning.operators import operator_task
from tcl.tuning.search.base import make
from tcl.tuning.targets import cuda_target, platform_for

pytestmark = pytest.mark.tvm
ARCH = "sm_80"


@pytest.fixture(scope="module")
def task():
    return operator_task("matmul:128,128,128")


@pytest.fixture(scope="module")
def kernels(task):
    target = cuda_target(ARCH)
    applier = Applier(module(task), tvm.target.Target(target))
    return [source(applier.schedule(p.schedule).mod, target) for p in sample_programs(task, target, 4, seed=1)]


def test_random_candidates_become_kernels_within_the_limits(kernels):
    assert len(set(kernels)) == 4
    for text in kernels:
        used = resources(text)
        assert "__global__" in text and "threadIdx.x" in text
        assert 32 <= used.threads <= 1024
        assert 0 < used.shared_bytes <= 49152


def test_smaller_devices_get_smaller_programs(task):
    target = cuda_target(ARCH) | {"max_shared_memory_per_block": 4096, "max_threads_per_block": 64, "max_num_threads": 64}
    applier = Applier(module(task), tvm.target.Target(target))
    programs = sample_programs(task, target, 4, seed=1)
    assert len(programs) == 4
    for program in programs:
        used = resources(source(applier.schedule(program.schedule).mod, target))
        assert used.threads <= 64 and used.shared_bytes <= 4096


def test_the_search_works_for_a_gpu_too(task):
    platform = platform_for(f"cuda:{ARCH}")
    search = make("decisions", task, cuda_target(ARCH), "xgb", platform=platform, seed=0)
    for space in search.spaces.values():
        genes = space.draw(200, np.random.default_rng(0))
        np.testing.assert_array_equal(space.flat(genes), flat_of(space.tokens(genes)))
    batch = search.propose(16)
    search.observe([p.program for p in batch], [1e-3 * (1 + i % 5) for i in range(len(batch))])
    applier = Applier(module(task), tvm.target.Target(cuda_target(ARCH)))
    chosen = [p for p in search.propose(8) if not p.random]
    assert chosen and search.scored > 1000
    assert all("__global__" in source(applier.schedule(p.program.schedule).mod, cuda_target(ARCH)) for p in chosen[:2])


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_ptx(kernels):
    ptx = compile_ptx(min(kernels, key=len), ARCH)
    assert b".entry main_kernel" in ptx and b".target sm_80" in ptx
    with pytest.raises(CompileFailed) as failure:
        compile_ptx("__global__ void f() { nonsense; }", ARCH)
    assert failure.value.kind == "build_error" and "nonsense" in str(failure.value)
    with pytest.raises(CompileFailed) as failure:
        compile_ptx(kernels[0], ARCH, timeout_s=0.01)
    assert failure.value.kind == "build_timeout"


def test_without_a_compiler_or_a_device_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="nvcc is not installed"):
        compile_ptx("", ARCH)
    if not tvm.cuda(0).exist:
        assert missing(cuda_target(ARCH)).startswith("No CUDA device is present")
        with pytest.raises(UserError, match="No CUDA device is present"):
            platform_for("cuda")
