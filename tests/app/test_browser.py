"""The app as a person meets it: a real server, a real browser, a real mouse."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from playwright.sync_api import Page, TimeoutError, expect

from tcl.jobs.store import CANCELLED, PAUSED, RUNNING, find, submit
from tests.app.serving import app
from tests.jobs.conftest import until
from tests.views.conftest import fill

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

DRAWN = ".tcl-chart[data-drawn]"


def drag(page: Page, x0: float, y0: float, x1: float, y1: float) -> None:
    """A box over the map, in shares of its width and height."""
    area = page.locator(".nsewdrag").first.bounding_box()
    assert area
    page.mouse.move(area["x"] + x0 * area["width"], area["y"] + y0 * area["height"])
    page.mouse.down()
    page.mouse.move(area["x"] + x1 * area["width"], area["y"] + y1 * area["height"], steps=5)
    page.mouse.up()


def choose(page: Page, picker: str, option: str) -> None:
    """One of a picker's options. A picker that is pressed while the page changes under it does not open, so it is pressed again."""
    wanted = page.get_by_role("option", name=option)
    box = page.get_by_role("combobox", name=re.compile(picker))
    for _ in range(8):
        box.scroll_into_view_if_needed()  # an open list closes when the page scrolls
        page.wait_for_timeout(500)
        box.click()
        try:
            wanted.click(timeout=3000)  # within the time limit too: a list that is open may close again before it is clicked
            return
        except TimeoutError:
            page.keyboard.press("Escape")
    wanted.click()


def still(page: Page, selector: str) -> dict[str, float]:
    """Where an element is, once the page no longer moves under it."""
    before = None
    for _ in range(30):
        box = page.locator(selector).first.bounding_box()
        if box is not None and box == before:
            return box
        before = box
        page.wait_for_timeout(500)
    raise AssertionError(f"{selector} does not come to rest")


def ranges(page: Page) -> list[float]:
    return page.evaluate("document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range.map(v => Math.round(v * 1e3) / 1e3)")


def test_every_page_opens(served, page):
    address, _, _ = served
    for path in ("", "explore", "train", "tune", "jobs"):
        page.goto(f"{address}/{path}")
        expect(page.locator("[data-testid=stMainBlockContainer]")).to_be_visible()
        expect(page.locator("[data-testid=stStatusWidget]")).to_have_count(0, timeout=20_000)
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{path} scrolls sideways at 1280"


def test_select_read_open_and_find_it_again(served, page):
    address, _, _ = served
    page.goto(f"{address}/explore")
    page.wait_for_selector(DRAWN)
    expect(page.get_by_text(re.compile("trustworthiness"))).to_be_visible()
    drag(page, 0.02, 0.02, 0.98, 0.98)
    said = page.get_by_text(re.compile(r"[\d,]+ selected")).first
    expect(said).to_be_visible()
    words = said.inner_text()
    assert int(re.search(r"([\d,]+) selected", words).group(1).replace(",", "")) > 50
    expect(page.locator("[data-testid=stDataFrame]").first).to_be_visible()
    assert "sel=b" in page.url

    # Tick the first row: the table's cells are drawn on a canvas.
    table = still(page, "[data-testid=stDataFrame]")
    page.mouse.click(table["x"] + 22, table["y"] + 52)
    expect(page.get_by_text("What its schedule does")).to_be_visible()
    expect(page.get_by_text("Latency on every platform")).to_be_visible()
    page.mouse.click(table["x"] + 22, table["y"] + 87)
    expect(page.get_by_text(re.compile("Only what differs"))).to_be_visible()

    page.reload()
    page.wait_for_selector(DRAWN)
    expect(page.get_by_text(words).first).to_be_visible()
    expect(page.get_by_text(re.compile("Only what differs"))).to_be_visible()


def test_recolouring_keeps_zoom_and_selection(served, page):
    address, _, _ = served
    page.goto(f"{address}/explore")
    page.wait_for_selector(DRAWN)
    whole = ranges(page)
    page.locator(DRAWN).first.hover()
    page.locator("[data-title='Zoom in']").first.click()
    further = "before => document.querySelector('.js-plotly-plot')._fullLayout.xaxis.range[0] > before"
    page.wait_for_function(further, arg=whole[0] + 0.01)
    drag(page, 0.1, 0.1, 0.9, 0.9)
    said = page.get_by_text(re.compile(r"[\d,]+ selected")).first
    expect(said).to_be_visible()
    words, zoomed = said.inner_text(), ranges(page)
    expect(page.locator(DRAWN).first).to_have_attribute("data-selected", re.compile(r"\d"))
    drawn = page.locator(DRAWN).first.get_attribute("data-drawn")
    choose(page, "Color by", "operator")
    page.wait_for_function("n => document.querySelector('.tcl-chart').dataset.drawn > n", arg=drawn)
    # A legend takes other room than a colour bar, and both axes keep one scale: the middle stays, the width nearly.
    (a, b), (c, d) = zoomed, ranges(page)
    assert abs((a + b) - (c + d)) < 0.02 * (b - a)
    assert 0.8 < (d - c) / (b - a) < 1.25 and d - c < 0.8 * (whole[1] - whole[0])
    expect(page.get_by_text(words).first).to_be_visible()
    assert shown_selected(page) == int(re.search(r"([\d,]+) selected", words).group(1).replace(",", ""))


def shown_selected(page: Page, chart: int = 0) -> int | None:
    """Points that the chart shows as selected; None where nothing is."""
    found = page.locator(".tcl-chart").nth(chart).get_attribute("data-selected")
    return None if found is None else int(found)


def test_each_view_selects_in_all_others(served, page):
    """Latencies, then an axis, then a search: each narrows what the map shows; taking all back shows everything again."""
    address, _, _ = served
    page.set_viewport_size({"width": 1280, "height": 1500})
    page.goto(f"{address}/explore")
    page.wait_for_function("document.querySelectorAll('.tcl-chart[data-drawn]').length == 4")
    assert shown_selected(page) is None
    bars = page.locator(".tcl-chart").nth(1).locator(".nsewdrag").bounding_box()
    page.mouse.move(bars["x"] + 5, bars["y"] + 40)
    page.mouse.down()
    page.mouse.move(bars["x"] + 0.5 * bars["width"], bars["y"] + 60, steps=4)
    page.mouse.up()
    said = page.get_by_text(re.compile(r"[\d,]+ selected")).first
    expect(said).to_be_visible()
    page.wait_for_url(re.compile("lat=latency"))
    counts = [int(re.search(r"([\d,]+) selected", said.inner_text()).group(1))]
    expect(page.locator(".tcl-chart").first).to_have_attribute("data-selected", str(counts[0]))
    page.locator(".tcl-chart").nth(3).scroll_into_view_if_needed()
    expect(page.locator(".tcl-chart").nth(3)).to_have_attribute("data-selected", re.compile(r"\d+"))
    assert 0 < shown_selected(page, 3) <= counts[0]
    expect(page.get_by_text("What sets the selected apart")).to_be_visible()
    axis = page.locator(".axis-brush").first
    axis.scroll_into_view_if_needed()
    brush = axis.bounding_box()
    x = brush["x"] + brush["width"] / 2
    page.mouse.move(x, brush["y"] + 0.1 * brush["height"])
    page.mouse.down()
    page.mouse.move(x, brush["y"] + 0.7 * brush["height"], steps=5)
    page.mouse.up()
    page.wait_for_url(re.compile("axes="))
    page.get_by_role("textbox", name="Search", exact=True).fill("matmul")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q=matmul"))
    expect(page.get_by_role("button", name="search matmul")).to_be_visible()
    counts.append(int(re.search(r"([\d,]+) selected", said.inner_text()).group(1)))
    assert 0 <= counts[1] < counts[0]
    page.reload()
    page.wait_for_selector(DRAWN)
    expect(page.get_by_role("button", name="search matmul")).to_be_visible()
    page.get_by_role("button", name="Clear all").click()
    expect(page.get_by_text("Drag a box")).to_be_visible()
    expect(page.locator(".tcl-chart").first).not_to_have_attribute("data-selected", re.compile("."))
    assert shown_selected(page) is None


def test_job_verbs_from_the_page_survive_a_reload(served, page, tmp_path, monkeypatch):
    address, workspace, _ = served
    monkeypatch.setenv("TCL_WORKSPACE", str(workspace))
    recorded = record(tmp_path / "recorded")
    job = find(submit("replay", ["jobs", "replay", str(recorded), "--speed", "1"], "A replayed run"))
    try:
        page.goto(f"{address}/jobs?job={job.id}")
        page.get_by_role("button", name="Pause").click()
        until(lambda: job.state == PAUSED)
        page.reload()
        page.get_by_role("button", name="Resume").click()
        until(lambda: job.state == RUNNING)
        page.get_by_role("button", name="Cancel").click()
        until(lambda: job.state == CANCELLED)
        expect(page.get_by_text("cancelled").first).to_be_visible()
        page.get_by_role("button", name="Remove", exact=True).click()
        until(lambda: not job.path.exists())
    finally:
        subprocess.run([sys.executable, "-m", "tcl", "jobs", "cancel", job.id], capture_output=True, check=False)


def test_live_chart_moves_and_keeps_its_zoom(served, page, tmp_path, monkeypatch):
    address, workspace, _ = served
    monkeypatch.setenv("TCL_WORKSPACE", str(workspace))
    job = find(submit("replay", ["jobs", "replay", str(record(tmp_path / "recorded")), "--speed", "0.5"], "A replayed run"))
    try:
        page.goto(f"{address}/tune?job={job.id}")
        page.wait_for_selector(DRAWN)
        page.locator(DRAWN).first.hover()
        page.locator("[data-title='Zoom in']").first.click()
        page.wait_for_timeout(700)
        zoomed, drawn = ranges(page), int(page.locator(DRAWN).first.get_attribute("data-drawn"))
        page.evaluate("document.querySelector('.tcl-chart').mark = 'the same element'")
        page.wait_for_function("n => Number(document.querySelector('.tcl-chart').dataset.drawn) > n + 1", arg=drawn)
        assert ranges(page) == zoomed
        assert page.evaluate("document.querySelector('.tcl-chart').mark") == "the same element"
        page.get_by_role("button", name="Stop").click()
        until(lambda: job.state == "stopped")
    finally:
        subprocess.run([sys.executable, "-m", "tcl", "jobs", "cancel", job.id], capture_output=True, check=False)


@pytest.mark.parametrize("shape", ["nothing", "one record", "all failed"])
def test_odd_data(browser, tmp_path, monkeypatch, shape):
    """Pages that break break here first: no dataset, a single program, nothing that ever succeeded."""
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path / "workspace"))
    monkeypatch.setenv("TCL_LOCK_DIR", str(tmp_path))
    datasets = []
    if shape != "nothing":
        settings = {"one record": {"programs_a_task": 1, "tasks": 1, "failing": 0.0, "unmeasured": 0.0}, "all failed": {"failing": 1.0}}[
            shape
        ]
        from tcl.features.map import make_map

        datasets = [fill(tmp_path / "data", **settings)]
        make_map(datasets[0])
    with app(tmp_path / "workspace", *(d.path for d in datasets)) as address:
        context = browser.new_context(viewport={"width": 1280, "height": 800})
        page = context.new_page()
        for path in ("", "explore", "train", "tune", "jobs"):
            page.goto(f"{address}/{path}")
            expect(page.locator("[data-testid=stStatusWidget]")).to_have_count(0, timeout=20_000)
            page.wait_for_timeout(500)
            assert page.locator("[data-testid=stException]").count() == 0
        page.goto(f"{address}/explore")
        said = {"nothing": "There is no data yet", "one record": "1 program ·", "all failed": "Nothing was measured successfully"}
        expect(page.get_by_text(re.compile(said[shape])).first).to_be_visible()
        context.close()


def record(folder):
    """A recorded tuning run of 40 s with a failure in it."""
    folder.mkdir()
    best = 1e-3
    with (folder / "events.jsonl").open("w") as file:
        file.write(
            json.dumps(
                {"t": 0, "kind": "task", "task": "a", "name": "matmul", "operator": "matmul", "weight": 1, "trials": 0, "best_s": None}
            )
            + "\n"
        )
        for i in range(200):
            latency = None if i % 20 == 7 else 1e-3 * (1 + (i * 7919) % 31) / (1 + i / 20)
            best = min(best, latency or best)
            event = {
                "t": 0.2 * i,
                "kind": "measured",
                "trial": i,
                "task": "a",
                "latency_s": latency,
                "error": "" if latency else "run_timeout",
                "best_s": best,
            }
            file.write(json.dumps(event) + "\n")
            file.write(json.dumps({"t": 0.2 * i, "kind": "step", "done": i + 1, "total": 200, "message": "measuring"}) + "\n")
    return folder
