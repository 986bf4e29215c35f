"""Pages that teach when something is wrong: what happened, why, what to try; and what an address asks for in vain is said."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from playwright.sync_api import expect
from streamlit.testing.v1 import AppTest

from app.problems import explained
from tests.app.serving import app
from tests.views.conftest import fill

MAIN = str(Path(__file__).parent.parent.parent / "app" / "main.py")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "gone", "/data/x/0.parquet"), ("0.parquet", "moved or removed", "tcl app DIR")),
        (PermissionError(errno.EACCES, "no", "/data/x"), ("may not be opened", "/data/x", "TCL_WORKSPACE")),
        (OSError(errno.ENOSPC, "full"), ("disk is full", "no room", "Clean up")),
        (MemoryError(), ("memory", "very many programs", "network or a task")),
        (ZeroDivisionError("division by zero"), ("could not be made", "ZeroDivisionError", "Reload")),
    ],
)
def test_every_kind_says_what_why_and_what_to_try(error, words):
    what, why, tries = explained(error)
    for word, text in zip(words, (what, why, " ".join(tries)), strict=True):
        assert word in text, text


def test_an_unexpected_one_says_where():
    try:
        fill(None)
    except Exception as error:
        assert "tcl/programs/dataset.py, line" in explained(error)[1]
    else:
        pytest.fail("a dataset cannot be made in no folder")


@pytest.mark.parametrize(
    ("page", "query"),
    [
        ("overview", {"data": "gone"}), ("explore", {"scope": "Network none"}), ("explore", {"platform": "none"}),
        ("explore", {"color": "no"}), ("lessons", {"lesson": "none"}), ("jobs", {"job": "none"}),
        ("replay", {"rec": "none"}), ("train", {"runs": "none"}),
    ],
)  # fmt: skip
def test_what_an_address_asks_for_in_vain_is_said_once(tmp_path, monkeypatch, page, query):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_APP_BUILTIN", "0")
    monkeypatch.setenv("TCL_APP_DATASETS", str(fill(tmp_path / "data", programs_a_task=4).path))
    at = AppTest.from_file(MAIN, default_timeout=60)
    at.query_params.update(query if page == "overview" else {})
    at.run()
    if page != "overview":
        at.query_params.update(query)
        at.switch_page(f"app_pages/{page}.py").run()
    assert not at.exception
    (asked,) = query.values()
    assert [asked in t.value for t in at.toast] == [True], [t.value for t in at.toast]
    at.run()
    assert not at.toast


@pytest.mark.browser
@pytest.mark.timeout(180)
def test_a_broken_file_is_explained_and_the_traceback_is_folded(page, tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    dataset = fill(tmp_path / "data", programs_a_task=4)
    for part in (dataset.path / "programs.parquet").glob("*.parquet"):
        part.write_bytes(b"not a table")
    with app(tmp_path / "workspace", dataset.path) as address:
        page.goto(f"{address}/explore")
        expect(page.get_by_text("A file of the dataset cannot be read")).to_be_visible()
        expect(page.get_by_text("What to try")).to_be_visible()
        expect(page.get_by_text("Traceback")).not_to_be_visible()
        page.get_by_text("Details", exact=True).click()
        expect(page.get_by_text("Traceback").first).to_be_visible()
