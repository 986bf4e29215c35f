"""`tcl bench app`: how long a person waits, measured in Chromium on the real app.

Explore is opened on the built-in dataset and on one of 100,000 programs: copies of the real ones whose tile sizes are shuffled within
each loop (so that every schedule is another one, and valid in shape), with the real latencies under log-normal noise of 20 %. Their
map is the real programs' places with noise, because what is timed is drawing it, not laying it out. The first drawing of a large map
shows a part of its points and says so, the whole follows by itself. All is warm: the page has been opened once before. WebGL runs in
software, on the same cores as the app: a computer with a graphics card is faster.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tcl.bench import report
from tcl.errors import UserError
from tcl.machine import quiet
from tcl.progress import Progress
from tcl.workspace import ASSETS, workspace

if TYPE_CHECKING:
    from playwright.sync_api import BrowserContext, Page

    from tcl.programs.dataset import Dataset

PAGES = ("", "explore", "sample", "data", "train", "distill", "tune", "lessons", "jobs", "replay")
FIRST_S, SELECT_S, FILTER_S, PAGE_S, MEMORY_GB = 3.0, 0.5, 1.0, 2.0, 2.0
SETTLED = "[data-testid=stApp][data-test-script-state=notRunning]"
VIEW = {"width": 1280, "height": 900}
CHARTS = 4
WARM_UP = 2
"""Openings that are not counted: the first fills the app's caches, the second lets the browser keep what it compiled."""
WAIT_MS = 300_000
_WAITING = {"timeout": WAIT_MS, "polling": 20}
WATCH = """condition => {
  const map = document.querySelector('.tcl-chart'), before = map.dataset.selected
  delete window.tclAnswered
  for (const kind of ['mouseup', 'keydown'])
    addEventListener(kind, event => { window.tclAsked = event.timeStamp }, { capture: true, once: true })
  const watch = new MutationObserver(() => {
    const said = [...document.querySelectorAll('button')].some(b => b.textContent.trim().endsWith(condition))
    if (!said || map.dataset.selected === before) return
    window.tclAnswered = performance.now()
    watch.disconnect()
  })
  const what = { subtree: true, childList: true, characterData: true, attributes: true, attributeFilter: ['data-selected'] }
  watch.observe(document.body, what)
}"""
_BOX = (0.3, 0.3, 0.6, 0.6)


def run(programs: int = 100_000, turns: int = 5, pages: bool = True, progress: Progress | None = None) -> dict[str, Any]:
    """Medians over `turns` of what a person waits for, in seconds, and the app's memory in GB.

    Args:
        programs: of the large dataset; 0 leaves it out.
        turns: how often each is timed, after two times that are not counted.
        pages: whether every page's opening is timed.
    """
    from playwright.sync_api import sync_playwright

    from tcl.bench.browser import CHROMIUM, FLAGS, served

    if CHROMIUM is None:
        raise UserError("There is no Chromium on this machine.", hint="Install the package chromium.")
    progress = progress or Progress()
    folder = workspace() / "cache" / "bench-app"
    folder.mkdir(parents=True, exist_ok=True)
    subjects = [("built-in", ASSETS / "builtin")]
    if programs:
        progress.step(0, 3, f"making {programs:,} programs")
        subjects.append((f"{programs:,} programs", large_dataset(folder / f"{programs}", programs)))
    rows: list[dict[str, Any]] = []
    with served(folder / "workspace", *(path for _, path in subjects), log=folder / "app.log") as (address, pid), sync_playwright() as play:
        browser = play.chromium.launch_persistent_context(str(folder / "browser"), executable_path=CHROMIUM, args=FLAGS, viewport=VIEW)
        with quiet():
            for i, (name, path) in enumerate(subjects):
                progress.step(1 + i, 1 + len(subjects) + pages, f"Explore, {name}")
                explore(browser, address, name, _picker(path), turns, rows, progress)
                rows.append({"what": "memory of the app", "data": name, "median": _memory_gb(pid), "unit": "GB"})
            if pages:
                for path_ in PAGES:
                    progress.check()
                    taken = [_open(browser, f"{address}/{path_}") for _ in range(turns + WARM_UP)][WARM_UP:]
                    rows.append(_row(f"page {path_ or 'overview'} opens", "built-in", taken))
        browser.close()
    return {"bench": "app", "rows": rows, "goals": goals(rows), "machine": report.machine()}


def goals(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The issues' goals against the rows."""
    found = []
    wanted = (("first drawing", FIRST_S), ("selection answered", SELECT_S), ("filter answered", FILTER_S), ("memory of the app", MEMORY_GB))
    for row in rows:
        for what, target in wanted:
            if row["what"] == what and not (what == "memory of the app" and row["data"] == "built-in"):
                found.append(report.goal(f"{what}, {row['data']}, {row['unit']}", target, row["median"], at_most=True))
    slowest = max((r["median"] for r in rows if r["what"].startswith("page ") and r["what"].endswith(" opens")), default=None)
    if slowest is not None:
        found.append(report.goal("slowest page opens, s", PAGE_S, slowest, at_most=True))
    return found


def explore(
    browser: BrowserContext, address: str, name: str, picker: str, turns: int, rows: list[dict[str, Any]], progress: Progress
) -> None:
    """Time the first drawing, a selection, a filter and a recolouring of one dataset."""
    from urllib.parse import quote

    taken: dict[str, list[float]] = {
        "first drawing": [], "whole map drawn": [], "page settled": [], "charts below drawn, once scrolled to": [],
        "selection answered": [], "selection shown in all charts": [],
        "filter answered": [], "recoloured": [],
    }  # fmt: skip
    for turn in range(turns + WARM_UP):
        progress.check()
        page = browser.new_page()
        page.set_default_timeout(WAIT_MS)
        start = time.perf_counter()
        page.goto(f"{address}/explore?data={quote(picker)}")
        page.wait_for_function("document.querySelector('.tcl-chart')?.matches('[data-some], [data-drawn]')", **_WAITING)
        seconds = {"first drawing": time.perf_counter() - start}
        page.wait_for_function("document.querySelector('.tcl-chart').matches('[data-drawn]')", **_WAITING)
        seconds["whole map drawn"] = time.perf_counter() - start
        page.wait_for_selector(SETTLED)
        seconds["page settled"] = time.perf_counter() - start
        scrolled = time.perf_counter()
        page.locator(".tcl-chart").nth(CHARTS - 1).scroll_into_view_if_needed()
        page.wait_for_function(f"document.querySelectorAll('.tcl-chart[data-drawn]').length >= {CHARTS}", **_WAITING)
        seconds["charts below drawn, once scrolled to"] = time.perf_counter() - scrolled
        page.locator(".tcl-chart").first.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        _drag(page)
        seconds["selection answered"], seconds["selection shown in all charts"] = _answer(page, page.mouse.up, "map")
        search = page.get_by_role("textbox", name="Search", exact=True)
        search.fill("conv2d")
        seconds["filter answered"], _ = _answer(page, partial(page.keyboard.press, "Enter"), "search conv2d")
        page.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
        page.wait_for_timeout(500)  # a list that has just opened closes when the page scrolls
        page.get_by_role("combobox", name="Color by").click()
        option = page.get_by_role("option", name="operator", exact=True)
        option.wait_for()
        drawn = page.locator(".tcl-chart").first.get_attribute("data-drawn")
        start = time.perf_counter()
        option.click()
        page.wait_for_function("n => document.querySelector('.tcl-chart').dataset.drawn > n", arg=drawn, **_WAITING)
        seconds["recoloured"] = time.perf_counter() - start
        page.close()
        if turn >= WARM_UP:
            for what, value in seconds.items():
                taken[what].append(value)
    rows += [_row(what, name, values) for what, values in taken.items()]


def _answer(page: Page, act: Callable[[], None], condition: str) -> tuple[float, float]:
    """Seconds until the page says what is selected and the map shows it; and until everything on the page does.

    Both count from the moment at which the browser gets the press of the key or the release of the button, by its own clock.
    """
    page.evaluate(WATCH, condition)
    act()
    page.wait_for_function("window.tclAnswered", **_WAITING)
    page.wait_for_selector(SETTLED)
    settled = page.evaluate("performance.now() - window.tclAsked")
    return page.evaluate("window.tclAnswered - window.tclAsked") / 1e3, settled / 1e3


def _drag(page: Page) -> None:
    """A box over the middle of the map, up to the moment before the button is released."""
    area = page.locator(".nsewdrag").first.bounding_box()
    assert area
    x0, y0, x1, y1 = _BOX
    page.mouse.move(area["x"] + x0 * area["width"], area["y"] + y0 * area["height"])
    page.mouse.down()
    page.mouse.move(area["x"] + x1 * area["width"], area["y"] + y1 * area["height"], steps=5)
    page.wait_for_timeout(300)


def _open(browser: BrowserContext, address: str) -> float:
    """Seconds until a page stands: its script has ended and its main block shows something."""
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_function(
        f"document.querySelector('{SETTLED}') && document.querySelector('[data-testid=stMainBlockContainer]')?.innerText.length > 40",
        **_WAITING,
    )
    seconds = time.perf_counter() - start
    page.close()
    return seconds


def _row(what: str, data: str, taken: list[float]) -> dict[str, Any]:
    return {
        "what": what,
        "data": data,
        "median": statistics.median(taken),
        "unit": "s",
        "min": min(taken),
        "max": max(taken),
        "turns": len(taken),
    }


def _memory_gb(pid: int) -> float:
    """Resident memory of the app and of the processes it started."""
    import psutil

    server = psutil.Process(pid)
    return sum(p.memory_info().rss for p in [server, *server.children(recursive=True)]) / 1e9


def _picker(path: Path) -> str:
    """The dataset's name in the app's picker."""
    return path.name if path.is_relative_to(ASSETS) else f"{path.parent.name}/{path.name}"


# -- the large dataset -----------------------------------------------------------------------------------------------------


def large_dataset(path: Path, programs: int, seed: int = 0) -> Path:
    """Make (or find) a dataset of so many programs in the manner of the built-in one, with a map; returns its folder."""
    import shutil

    from tcl.features.map import load_map
    from tcl.programs.dataset import Dataset

    if (path / "dataset.json").exists():
        dataset = Dataset.open(path)
        if dataset.stats()["programs"] == programs and load_map(dataset) is not None:
            return path
        shutil.rmtree(path)
    source = Dataset.open(ASSETS / "builtin")
    dataset = Dataset.create(path, f"{programs:,} programs made from the built-in ones, for tcl bench app: not measured.")
    _fill(source, dataset, programs, np.random.default_rng(seed))
    return path


def _fill(source: Dataset, dataset: Dataset, programs: int, rng: np.random.Generator) -> None:
    import pandas as pd

    from tcl.features.map import Map, load_map, store_map
    from tcl.programs.types import Measurement, Program
    from tcl.programs.writer import Writer

    real = source.programs().set_index("program")
    labels = source.labels()
    known = {name: part.set_index("program")["latency_s"] for name, part in labels.groupby(labels["platform"].astype(str))}
    stored = load_map(source)
    assert stored is not None
    places = stored.coordinates.set_index("program")
    made: dict[int, tuple[int, int, str]] = {int(p): (int(p), int(t), s) for p, t, s in real.itertuples()}
    originals = list(made)
    while len(made) < programs:
        for i in rng.permutation(len(originals))[: programs - len(made)]:
            task, schedule = int(real["task"].iloc[i]), _shuffled(real["schedule"].iloc[i], rng)
            made.setdefault(Program(task, schedule).id, (originals[i], task, schedule))
    noise = rng.normal(0, 0.2, (len(made), len(known)))
    with Writer(dataset) as writer:
        for platform in source.platforms().values():
            writer.add_platform(platform)
        writer.add_tasks(source.task_list())
        writer.add_programs(Program(task, schedule) for _, task, schedule in made.values())
        for j, (name, latency) in enumerate(known.items()):
            rows = []
            for i, (program, (original, task, _)) in enumerate(made.items()):
                value = latency.get(original, np.nan)
                if np.isfinite(value):
                    rows.append(Measurement(program, task, name, (float(value * np.exp(noise[i, j])),), measured_at=1.0))
            writer.add_measurements(rows)
    dataset.refresh()
    xy = places.loc[[original for original, _, _ in made.values()]].to_numpy(np.float32)
    xy = xy + rng.normal(0, 0.15, xy.shape).astype(np.float32)
    n = len(made)
    about = {"scope": "all", "n": n, "of": n, "seed": 0, "trustworthiness": None, "trust_points": 0, "trust_neighbours": 0, "variance": 1.0,
             "seconds": 0.0, "dataset_version": dataset.version, "vectors": "places of the built-in programs, with noise"}  # fmt: skip
    store_map(dataset, "all", Map(pd.DataFrame({"program": list(made), "x": xy[:, 0], "y": xy[:, 1]}), about))


def _shuffled(schedule: str, rng: np.random.Generator) -> str:
    """The trace with each tiling's factors in another order; a loop's extent stays what it is."""
    instructions, decisions = json.loads(schedule)
    mixed = [[at, [int(v) for v in rng.permutation(d)] if isinstance(d, list) else d] for at, d in decisions]
    return json.dumps([instructions, mixed], separators=(",", ":"))
