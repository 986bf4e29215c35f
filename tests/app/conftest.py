from __future__ import annotations

from contextlib import ExitStack

import pytest

from tcl.features.map import make_map
from tcl.jobs.store import ALIVE, all_jobs
from tests.app.serving import CHROMIUM, FLAGS, app
from tests.views.conftest import fill


@pytest.fixture(scope="session")
def browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: install the chromium package to drive the app")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=20_000)  # the machine may be busy: what is tested is what appears, not when
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def served(tmp_path_factory):
    """The app with one dataset of 180 programs, its map made, for all tests; (address, workspace, dataset)."""
    root = tmp_path_factory.mktemp("app")
    with ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:  # for the app that is started here, not for every test after it
            patch.setenv("TCL_WORKSPACE", str(root / "workspace"))
            patch.setenv("TCL_LOCK_DIR", str(root))
            dataset = fill(root / "data")
            make_map(dataset)
            address = stack.enter_context(app(root / "workspace", dataset.path))
        yield address, root / "workspace", dataset


@pytest.fixture
def own_workspace(tmp_path, monkeypatch):
    """An empty workspace, no dataset; jobs that a test leaves are ended."""
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    monkeypatch.setenv("TCL_APP_BUILTIN", "0")
    monkeypatch.delenv("TCL_APP_DATASETS", raising=False)
    yield
    for job in all_jobs():
        if job.state in ALIVE:
            job.cancel()


@pytest.fixture
def page(browser):
    """A fresh page that fails the test on any exception or error that the browser reports."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(90_000)  # a busy machine takes half a minute to draw a first chart
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    shown = opened.locator("[data-testid=stException]").count()
    context.close()
    assert not problems, problems
    assert not shown
