"""Targets and platforms of this machine."""

from __future__ import annotations

import json

import pytest

from tcl.errors import UserError
from tcl.tuning import targets
from tcl.tuning.targets import Machine, available_profiles, cuda_target, platform_for, target_json


@pytest.fixture
def old_machine(monkeypatch):
    """A processor of 2009: SSE4.2 and nothing newer."""
    machine = Machine("Intel(R) Core(TM) i7 CPU 860 @ 2.80GHz", 4, frozenset(("sse4_2", "popcnt")), 32768, 262144, 8 << 20, 2.8e9, 8 << 30)
    monkeypatch.setattr(targets, "this_machine", lambda: machine)
    return machine


def test_profiles_of_this_machine():
    profiles = available_profiles()
    assert profiles[-1] == "native"
    for name in profiles[:-1]:
        platform = platform_for(name)
        assert json.loads(platform.target) == target_json(name)
        assert targets.ISA_PROFILES[name].title in platform.description and "profile" in platform.description
        assert platform.features["cores"] == target_json(name)["num-cores"]
    assert len({platform_for(p).name for p in profiles}) == len(profiles)


def test_a_profile_the_processor_lacks_is_refused(old_machine):
    assert available_profiles() == ["sse42", "native"]
    assert old_machine.vector_bits == 128
    assert platform_for("sse42").name == "core-i7-860-4c-sse42"
    with pytest.raises(UserError, match="lacks avx512f"):
        target_json("avx512")


def test_unknown_targets():
    with pytest.raises(UserError, match="not a target"):
        target_json("sparc")
    with pytest.raises(UserError, match="not a CUDA architecture"):
        target_json("cuda:volta")


def test_cuda_by_architecture_needs_no_gpu():
    target = target_json("cuda:sm_80")
    assert target == cuda_target("sm_80")
    assert (target["kind"], target["arch"]) == ("cuda", "sm_80")
    assert platform_for("cuda:sm_80").kind == "gpu"
