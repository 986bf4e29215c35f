"""Make the README's pictures from the real app: `.venv/bin/python assets/pictures/make.py` (needs Chromium; about two minutes).

explore.png: the built-in dataset with a part of it selected. tune.gif: the recorded tuning run of `assets/recorded`, moment by
moment on the Replay page.
"""

from __future__ import annotations

import io
import json
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from tcl.bench.app import SETTLED, _drag
from tcl.bench.browser import CHROMIUM, FLAGS, served

HERE = Path(__file__).resolve().parent
ASSETS = HERE.parent
RUN = "tune-matmul-256"
FRAMES, FRAME_MS, LAST_MS, WIDTH, HEIGHT, COLORS = 14, 500, 3000, 800, 600, 64


def settled(page: Page, wait_ms: int = 1200) -> None:
    page.wait_for_selector(".tcl-chart[data-drawn]")
    page.wait_for_selector(SETTLED)
    page.wait_for_timeout(wait_ms)


def explore(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 900})
    page.goto(f"{address}/explore?data=builtin")
    settled(page)
    _drag(page)
    page.mouse.up()
    page.wait_for_selector(".tcl-chart[data-selected]")
    page.mouse.move(4, 450)
    settled(page)
    page.screenshot(path=str(HERE / "explore.png"))


def tune(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1000, "height": 1000})
    events = [json.loads(line) for line in (ASSETS / "recorded" / RUN / "events.jsonl").read_text().splitlines()]
    measured = [event["t"] for event in events if event["kind"] == "measured"]
    span = (measured[-1] - measured[0]) / (FRAMES - 2)
    frames = []
    for moment in [*(measured[0] + span * i for i in range(FRAMES - 1)), events[-1]["t"]]:
        page.goto(f"{address}/replay?rec={RUN}&t={moment + 0.05:.2f}")
        page.wait_for_selector(".tcl-chart[data-drawn]")
        page.wait_for_selector(SETTLED)
        page.mouse.move(2, 500)
        page.wait_for_timeout(900)
        slider = page.locator("[data-testid=stSlider]").bounding_box()
        assert slider
        shot = page.screenshot(clip={"x": 0, "y": slider["y"] - 8, "width": 1000, "height": HEIGHT})
        frame = Image.open(io.BytesIO(shot)).convert("RGB")
        frames.append(frame.resize((WIDTH, HEIGHT * WIDTH // 1000), Image.Resampling.LANCZOS))
    shades = frames[-1].quantize(COLORS, dither=Image.Dither.NONE)
    first, *others = [frame.quantize(palette=shades, dither=Image.Dither.NONE) for frame in frames]
    durations = [FRAME_MS] * (len(frames) - 1) + [LAST_MS]
    first.save(HERE / "tune.gif", save_all=True, append_images=others, duration=durations, loop=0, optimize=True)


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder) / "workspace", ASSETS / "builtin") as (address, _),
        sync_playwright() as play,
    ):
        page = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS).new_page(color_scheme="light")
        page.set_default_timeout(120_000)
        explore(page, address)
        tune(page, address)


if __name__ == "__main__":
    main()
