"""A link is a state: outlines on the map and open programs, written into the address."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote, urlencode

import streamlit as st

from tcl.programs.types import format_id

CORNERS = 80
"""Corners of a lasso that a link keeps; more are thinned out."""


def encode_shapes(shapes: list[dict[str, Any]]) -> str:
    """Outlines as short text: "b:x0,x1,y0,y1" or "l:x,y,x,y,…", joined by ";"."""
    parts = []
    for shape in shapes:
        if "box" in shape:
            parts.append("b:" + _numbers(shape["box"]))
        elif shape.get("lasso"):
            corners = shape["lasso"][:: max(1, -(-len(shape["lasso"]) // CORNERS))]
            parts.append("l:" + _numbers([v for corner in corners for v in corner]))
    return ";".join(parts)


def decode_shapes(text: str) -> list[dict[str, Any]]:
    """The inverse; what is not an outline is left out, so that a mistyped link still opens."""
    shapes: list[dict[str, Any]] = []
    for part in text.split(";"):
        kind, _, numbers = part.partition(":")
        with contextlib.suppress(ValueError):
            values = [float(v) for v in numbers.split(",")]
            if kind == "b" and len(values) == 4:
                shapes.append({"box": values})
            elif kind == "l" and len(values) >= 6 and len(values) % 2 == 0:
                shapes.append({"lasso": [values[i : i + 2] for i in range(0, len(values), 2)]})
    return shapes


def encode_axes(axes: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Ranges on named axes: "name:from,to,from,to" joined by ";"."""
    parts = (f"{quote(name, safe='')}:{_numbers([v for r in ranges for v in r])}" for name, ranges in axes.items() if ranges)
    return ";".join(parts)


def decode_axes(text: str) -> dict[str, list[list[float]]]:
    """The inverse; what is no range is left out."""
    found: dict[str, list[list[float]]] = {}
    for part in text.split(";"):
        name, _, numbers = part.partition(":")
        with contextlib.suppress(ValueError):
            values = [float(v) for v in numbers.split(",")]
            if name and values and len(values) % 2 == 0:
                found[unquote(name)] = [values[i : i + 2] for i in range(0, len(values), 2)]
    return found


def remember(key: str, value: str) -> None:
    """Set a parameter of the address; an empty value takes it away."""
    if value:
        st.query_params[key] = value
    else:
        st.query_params.pop(key, None)


def opened_ids() -> list[str]:
    """The one or two programs (16 hex digits each) that are open."""
    return [i for i in st.query_params.get("open", "").split(",") if len(i) == 16 and all(c in "0123456789abcdef" for c in i)][:2]


def mind_the_address(key: str, known: Collection[str], what: str) -> str:
    """What the address asks for under `key`, "" where that is not among the `known`: then it is said, once, and left in no doubt.

    To be called before a picker that is bound to the same parameter.
    """
    asked = st.query_params.get(key, "")
    if not asked or asked in known:
        return asked
    say_missing(key, asked, what)
    return ""


def linked_runs(asked: Iterable[str], known: Collection[str], what: str) -> list[str]:
    """Those of the runs that the address asks for that are here, each once; the others are said. what: one of them in words."""
    named = [name for name in dict.fromkeys(asked) if name]
    if missing := [name for name in named if name not in known]:
        say_missing("runs", ", ".join(missing), what if len(missing) == 1 else f"{what}s")
    return [name for name in named if name in known]


def say_missing(key: str, asked: str, what: str) -> None:
    """Say, once a session, that what the address asks for under `key` is not here."""
    said = f"address-{key}"
    if st.session_state.get(said) != asked:
        st.session_state[said] = asked
        shown = asked.replace("`", "'")[:60]
        st.toast(
            f"The {what} `{shown}` of the address is not here: renamed, removed, or on another machine?",
            icon=":material/link_off:",
            duration="infinite",
        )


def explore_query(dataset: str, programs: Iterable[int], platform: str = "") -> dict[str, str]:
    """The Explore page with these programs (one or two ids) open: its address' parameters. dataset: its name in the picker."""
    known = {"data": dataset, "platform": platform, "open": ",".join(dict.fromkeys(format_id(p) for p in programs))}
    return {key: value for key, value in known.items() if value}


def explore_link(dataset: str, programs: Iterable[int], platform: str = "") -> str:
    """The same as a link, for the cells of a table."""
    return "explore?" + urlencode(explore_query(dataset, programs, platform))


def remember_opened(ids: list[str]) -> None:
    if ids != opened_ids():
        st.query_params["open"] = ",".join(ids)


def _numbers(values: list[float]) -> str:
    return ",".join(f"{float(v):.3f}".rstrip("0").rstrip(".") for v in values)
