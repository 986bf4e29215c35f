"""Large figures, kept where the browser fetches them once: a page that is run again sends an address, not megabytes."""

from __future__ import annotations

from collections import OrderedDict
from hashlib import blake2b
from threading import Lock

ADDRESS = "/tcl-static/figures/"
LARGE = 100_000
"""Characters from which on a figure is fetched by its address."""
MOST_BYTES = 256 * 2**20
"""Kept at most; the oldest go first. A figure of 100,000 points has about 2 MB."""

_kept: OrderedDict[str, bytes] = OrderedDict()
_lock = Lock()


def publish(figure: str) -> str:
    """Keep a figure's JSON; returns its address."""
    raw = figure.encode()
    name = blake2b(raw, digest_size=12).hexdigest()
    with _lock:
        _kept[name] = raw
        _kept.move_to_end(name)
        while len(_kept) > 1 and sum(map(len, _kept.values())) > MOST_BYTES:
            _kept.popitem(last=False)
    return ADDRESS + name


def find(name: str) -> bytes | None:
    """The figure under this name; None when it is no longer kept."""
    with _lock:
        return _kept.get(name)
