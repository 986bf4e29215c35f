from __future__ import annotations

import pytest

from tcl.features.map import make_map
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


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """The app with one dataset of 180 programs, its map made; (address, workspace, dataset)."""
    root = tmp_path_factory.mktemp("app")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TCL_WORKSPACE", str(root / "workspace"))
        patch.setenv("TCL_LOCK_DIR", str(root))
        dataset = fill(root / "data")
        make_map(dataset)
        with app(root / "workspace", dataset.path) as address:
            yield address, root / "workspace", dataset


@pytest.fixture
def page(browser):
    """A fresh page that fails the test on any exception or error that the browser reports."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    opened = context.new_page()
    problems: list[str] = []
    opened.on("pageerror", lambda error: problems.append(str(error)))
    yield opened
    shown = opened.locator("[data-testid=stException]").count()
    context.close()
    assert not problems, problems
    assert not shown
