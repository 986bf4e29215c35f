"""What needs no browser: pages stay light, a busy port is one sentence, a link is a state."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

APP = Path(__file__).parent.parent.parent / "app"


def tcl(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "tcl", *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_no_page_brings_tvm_or_torch(tmp_path, monkeypatch):
    """Every page is run in one process, as the server would; the compilers must not have been imported afterwards."""
    from tests.views.conftest import fill

    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    data = fill(tmp_path / "data")
    monkeypatch.setenv("TCL_APP_DATASETS", str(data.path))
    code = f"""
import sys
from streamlit.testing.v1 import AppTest
at = AppTest.from_file({str(APP / "main.py")!r}, default_timeout=60).run()
assert not at.exception, at.exception
for page in ("overview", "explore", "sample", "data", "train", "distill", "tune", "lessons", "jobs", "replay"):
    at.switch_page(f"app_pages/{{page}}.py").run()
    assert not at.exception, (page, at.exception)
heavy = [m for m in ("tvm", "torch", "umap", "transformers", "xgboost") if m in sys.modules]
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=APP.parent, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


def test_busy_port_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tcl("app", "--port", str(port))
    assert done.returncode != 0
    assert done.stderr.strip().count("\n") == 0
    assert f"Port {port} cannot be used" in done.stderr and f"--port {port + 1}" in done.stderr


def test_a_folder_that_is_no_dataset_is_refused(tmp_path):
    done = tcl("app", str(tmp_path))
    assert done.returncode != 0 and "is not a dataset" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "shapes", [[], [{"box": [0.0, 1.5, -2.25, 3.0]}], [{"lasso": [[0.0, 0.0], [1.0, 0.0], [0.5, 2.0]]}, {"box": [1, 2, 3, 4]}]]
)
def test_outlines_survive_a_link(shapes):
    from app.links import decode_shapes, encode_shapes

    assert decode_shapes(encode_shapes(shapes)) == shapes


def test_long_lassos_are_thinned_and_nonsense_is_left_out():
    from app.links import CORNERS, decode_shapes, encode_shapes

    circle = [[float(np.cos(a)), float(np.sin(a))] for a in np.linspace(0, 6.2, 999)]
    assert len(decode_shapes(encode_shapes([{"lasso": circle}]))[0]["lasso"]) <= CORNERS
    assert decode_shapes("b:1,2;l:1,2,3;x:9;b:a,b,c,d;;b:1,2,3,4") == [{"box": [1, 2, 3, 4]}]


def test_ranges_on_axes_survive_a_link():
    from app.links import decode_axes, encode_axes

    axes = {"split0_factor1": [[0.0, 2.5]], "a:b;c": [[-1.0, 1.0], [3.0, 4.25]]}
    assert decode_axes(encode_axes(axes)) == axes
    assert decode_axes("x:1;y:a,b;:1,2;z:1,2,3") == {}


def test_what_the_explore_page_exports_is_read_again(tmp_path, monkeypatch):
    """The CSV by pandas, the Parquet by pandas, the plan by `tcl collect`."""
    import io

    import pandas as pd

    from app.explore_tools import as_csv, as_parquet, as_plan
    from tcl.programs.types import parse_id
    from tcl.sampling.plan import read_plan
    from tcl.views.explore import explore_frame
    from tests.views.conftest import fill

    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    chosen = explore_frame(fill(tmp_path / "data", programs_a_task=5), "all", "avx2", None).iloc[3:9]
    ids = chosen["program"].tolist()
    table = pd.read_csv(io.StringIO(as_csv(chosen, "avx2")), dtype={"program": str})
    assert [parse_id(i) for i in table["program"]] == ids and set(table["platform"]) == {"avx2"}
    assert pd.read_parquet(io.BytesIO(as_parquet(chosen, "avx2")))["program"].tolist() == ids
    plan = tmp_path / "plan.csv"
    plan.write_text(as_plan(chosen))
    assert read_plan(plan).tolist() == ids
