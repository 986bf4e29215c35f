"""Samplers by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tcl.errors import UserError
from tcl.sampling.activeml import ProbCover, TypiClust
from tcl.sampling.alt import Alt
from tcl.sampling.balto import Balto
from tcl.sampling.base import Sampler
from tcl.sampling.cdmpp import Cdmpp
from tcl.sampling.kcenter import KCenter
from tcl.sampling.kmeans import KMeans
from tcl.sampling.random import Random
from tcl.sampling.rdu import Rdu
from tcl.sampling.uncertainty import Uncertainty

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    cls.name: cls for cls in (Rdu, Random, KMeans, KCenter, Uncertainty, Cdmpp, Balto, Alt, TypiClust, ProbCover)
}
DEFAULT = "rdu"
"""Of `tcl sample` and the Sample page: over all platforms of `tcl bench sampling` (BENCHMARKS.md) the one among the first two both by mean
top-1 and by the gain over random at 10 %, and by the mean over all shares."""
ABLATIONS: dict[str, dict[str, float]] = {"rdu-r": {"r": 0.0}, "rdu-d": {"d": 0.0}, "rdu-u": {"u": 0.0}}
"""RDU without one of its parts, under names of their own."""


def names() -> list[str]:
    """Every name that `make_sampler` knows."""
    return [*SAMPLERS, *ABLATIONS]


def make_sampler(spec: str, **settings: Any) -> Sampler:
    """The sampler called `spec`; `settings` are its fields (RDU: r, d, u, neighbours, allocation).

    Settings may stand in the name: "rdu:r=0.5,allocation=sqrt".
    """
    name, _, text = spec.partition(":")
    for pair in filter(None, text.split(",")):
        key, mark, value = pair.partition("=")
        if not mark:
            raise UserError(f"{pair!r} is not a setting of the sampler {name}.", hint="Write NAME=VALUE, as in rdu:r=0.5,d=2.")
        settings[key.strip()] = _number(value.strip())
    if name in ABLATIONS:
        return Rdu(**{**settings, **ABLATIONS[name]})
    if name not in SAMPLERS:
        raise UserError(f"There is no sampler {name!r}.", hint=f"Choose one of {', '.join(names())}.")
    try:
        return SAMPLERS[name](**settings)
    except TypeError:
        raise UserError(f"The sampler {name!r} has no setting {', '.join(settings)}.") from None


def _number(text: str) -> float | int | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
