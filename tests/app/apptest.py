"""Pages without a browser, for the tests of several of them."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

MAIN = str(Path(__file__).parent.parent.parent / "app" / "main.py")


def page(name: str, **query: str) -> AppTest:
    """The page `app_pages/NAME.py` with these parameters of the address."""
    at = AppTest.from_file(MAIN, default_timeout=60).run()
    for key, value in query.items():
        at.query_params[key] = value
    return ran(at.switch_page(f"app_pages/{name}.py").run())


def ran(at: AppTest) -> AppTest:
    assert not at.exception, [e.message for e in at.exception]
    return at


def show(at: AppTest, key: str, section: str) -> AppTest:
    """Choose one of a row of buttons."""
    return ran(next(b for b in at.get("button_group") if b.key == key).set_value(section).run())
