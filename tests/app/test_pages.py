"""What every page's source must keep to."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).resolve().parents[2] / "app" / "app_pages").glob("*.py"))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.stem)
def test_no_bare_strings_on_a_page(page: Path) -> None:
    """Streamlit writes them on the screen."""
    statements = ast.parse(page.read_text()).body[1:]  # but for the page's own docstring
    values = [(s.lineno, s.value) for s in statements if isinstance(s, ast.Expr)]
    assert not [line for line, value in values if isinstance(value, ast.Constant) and isinstance(value.value, str)]
