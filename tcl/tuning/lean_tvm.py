"""Importing TVM without PyTorch: 3 s instead of 7.

TVM imports PyTorch where it is installed, for a faster way between both's tensors that nothing here needs.
"""

from __future__ import annotations

import sys


def load_tvm() -> None:
    """Import TVM; to be called before anything else does. PyTorch can be imported afterwards as always."""
    absent = "torch" not in sys.modules
    if absent:
        sys.modules["torch"] = None  # type: ignore[assignment]
    try:
        import tvm  # noqa: F401
    finally:
        if absent:
            del sys.modules["torch"]
