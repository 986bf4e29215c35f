"""People and jobs that must not disturb each other: two browsers at once, and a job that outlives the app that started it."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tcl.jobs.store import ALIVE, CANCELLED, RUNNING, Job, all_jobs
from tests.app.serving import app
from tests.app.test_browser import DRAWN, drag, shown_selected
from tests.jobs.conftest import until

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def count(page: Page) -> int:
    """Programs that the page says are selected."""
    said = page.get_by_text(re.compile(r"[\d,]+ selected")).first
    expect(said).to_be_visible()
    return int(re.search(r"([\d,]+) selected", said.inner_text()).group(1).replace(",", ""))


def test_two_browsers_do_not_disturb_each_other(served, browser: Browser):
    """Each selects something else, on its own page; the other's page, colour and selection stay as they were."""
    address, _, _ = served
    contexts = [browser.new_context(viewport={"width": 1280, "height": 800}) for _ in range(2)]
    try:
        one, two = (context.new_page() for context in contexts)
        one.goto(f"{address}/explore")
        two.goto(f"{address}/explore?color=operator")
        for page in (one, two):
            page.wait_for_selector(DRAWN)
        drag(one, 0.02, 0.02, 0.98, 0.98)
        all_of_it = count(one)
        drag(two, 0.02, 0.02, 0.5, 0.98)
        half = count(two)
        assert 0 < half < all_of_it == count(one)
        assert (shown_selected(one), shown_selected(two)) == (all_of_it, half)
        two.get_by_role("button", name="Clear all").click()
        expect(two.get_by_text("Drag a box")).to_be_visible()
        assert count(one) == all_of_it == shown_selected(one)
        assert "color=operator" in two.url and "color=" not in one.url and "sel=b" in one.url
    finally:
        for context in contexts:
            context.close()


def test_a_job_started_from_the_page_outlives_the_app(page, tmp_path, monkeypatch):
    workspace = tmp_path / "workspace"
    for name, value in (("TCL_WORKSPACE", workspace), ("TCL_LOCK_DIR", tmp_path)):
        monkeypatch.setenv(name, str(value))
    jobs: list[Job] = []
    try:
        with app(workspace) as address:
            page.goto(f"{address}/tune")
            page.get_by_role("button", name="Start tuning").click()
            until(lambda: bool(all_jobs()))
            jobs = all_jobs()
            until(lambda: jobs[0].state == RUNNING)
        assert jobs[0].state == RUNNING  # the app has ended, what it started has not
        with app(workspace) as address:
            page.goto(f"{address}/jobs")
            for verb in ("Pause", "Stop", "Cancel"):
                expect(page.get_by_role("button", name=verb)).to_be_visible()
            page.get_by_role("button", name="Cancel").click()
            until(lambda: jobs[0].state == CANCELLED)
            expect(page.get_by_role("button", name="Remove", exact=True)).to_be_visible()
    finally:
        for job in jobs:
            if job.state in ALIVE:
                job.cancel()
