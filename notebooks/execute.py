"""Execute the notebooks in place, so that their outputs are true again: `python notebooks/execute.py [NAME.ipynb …]`.

What changes from run to run without meaning (times) is left out. Where Chromium is installed, each plotly figure also gets a picture, for
viewers that cannot draw it (GitHub, editors); Jupyter shows the live one.
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).resolve().parent
TIMEOUT_S = 240
PLOTLY = "application/vnd.plotly.v1+json"
WIDTH = 900


def execute(path: Path) -> Any:
    """The notebook with fresh outputs, not yet written. Raises nbclient's CellExecutionError where a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(path.parent)}}
    # Streams joined: how often a busy machine flushes what is printed is not the notebook's doing.
    NotebookClient(notebook, timeout=TIMEOUT_S, kernel_name="python3", resources=where, coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def add_pictures(notebooks: Sequence[Any]) -> None:
    """Give every plotly output a PNG beside it; does nothing without Chromium."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("No Chromium: the figures get no pictures.", file=sys.stderr)
        return
    import plotly
    from playwright.sync_api import sync_playwright

    flags = ["--no-sandbox", "--disable-gpu", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=browser, args=flags)
        page = chromium.new_page()
        page.set_content("<div id='chart'></div>")
        page.add_script_tag(path=str(Path(plotly.__file__).parent / "package_data" / "plotly.min.js"))
        for data in (o["data"] for n in notebooks for c in n.cells for o in c.get("outputs", []) if PLOTLY in o.get("data", {})):
            url = page.evaluate(
                """async ([figure, width]) => {
                  await Plotly.newPlot("chart", figure.data, { ...figure.layout, width, paper_bgcolor: "white" })
                  return Plotly.toImage("chart", { format: "png", width, height: figure.layout.height })
                }""",
                [json.loads(json.dumps(data[PLOTLY])), WIDTH],
            )
            data["image/png"] = url.partition(",")[2]
            assert base64.b64decode(data["image/png"])[:4] == b"\x89PNG"
        chromium.close()


def main(names: Sequence[str]) -> None:
    paths = [HERE / name for name in names] or sorted(HERE.glob("*.ipynb"))
    made = [execute(path) for path in paths]
    add_pictures(made)
    for path, notebook in zip(paths, made, strict=True):
        nbformat.write(notebook, path)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB", file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
