"""The notebooks run from top to bottom, in all in a few minutes, and keep to the house's form."""

from __future__ import annotations

import ast
import importlib.util
import time
from pathlib import Path

import nbformat
import pytest

from tcl.lessons import LESSONS

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
PATHS = [FOLDER / lesson.notebook for lesson in LESSONS.values()]
LIMIT_S = 300.0
LARGEST = 700_000


def test_each_lesson_has_its_notebook():
    assert sorted(PATHS) == sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", PATHS, ids=lambda p: p.stem)
def test_form(path):
    """One import cell at the top, outputs committed, small, ends with one's own data."""
    notebook = nbformat.read(path, as_version=4)
    code = [c for c in notebook.cells if c.cell_type == "code"]
    for number, cell in enumerate(code):
        imports = any(isinstance(node, ast.Import | ast.ImportFrom) for node in ast.walk(ast.parse(cell.source)))
        assert imports == (number == 0), cell.source
    assert [c.execution_count for c in code] == list(range(1, len(code) + 1))
    assert not any(o.output_type == "error" for c in code for o in c.outputs)
    outputs = [o["data"] for c in code for o in c.outputs if "data" in o]
    figures = [d for d in outputs if "application/vnd.plotly.v1+json" in d]
    assert figures and all("image/png" in d for d in figures)
    assert sum("The answer</summary>" in d.get("text/markdown", "") for d in outputs) >= 3
    headings = [line for c in notebook.cells if c.cell_type == "markdown" for line in c.source.splitlines() if line.startswith("#")]
    assert headings[-1] == "## On your own data"
    assert path.stat().st_size < LARGEST


@pytest.mark.timeout(900)
def test_all_run_from_a_clean_start(tmp_path, monkeypatch):
    """In processes of their own, with an empty workspace; together in less than five minutes."""
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    began = time.monotonic()
    for path in PATHS:
        fresh = module.execute(path)  # raises where a cell fails
        kept = nbformat.read(path, as_version=4)
        assert [len(c.get("outputs", [])) for c in fresh.cells] == [len(c.get("outputs", [])) for c in kept.cells], path.name
    assert time.monotonic() - began < LIMIT_S
