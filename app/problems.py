"""When a page cannot go on: what happened, why, what to try. The traceback is there for who wants it, and in the app's log."""

from __future__ import annotations

import errno
import traceback
from pathlib import Path

import streamlit as st
from pyarrow import ArrowException

from app.shared import show_error
from tcl.errors import UserError
from tcl.workspace import workspace

ROOT = Path(__file__).resolve().parent.parent
RELOAD = (
    "Reload the page. Where that does not help, open it afresh: the address holds what was chosen, and one of these choices may be why."
)
UNHARMED = "Jobs go on, and nothing that is stored was changed: a page only looks at it."


def teach(error: Exception) -> bool:
    """Show an exception that a page, a part of one, or a button's action has raised; True: nothing else need be shown."""
    if isinstance(error, UserError):
        show_error(error)
        return True
    what, why, tries = explained(error)
    st.error(f"{why} {UNHARMED}", title=what, icon=":material/error:")
    st.markdown("**What to try**\n\n" + "\n".join(f"- {t}" for t in tries))
    st.link_button("Open this page afresh", "?", icon=":material/refresh:")
    with st.expander("Details", icon=":material/bug_report:"):
        st.code("".join(traceback.format_exception(error)), language=None, height=300)
    return True


def explained(error: Exception) -> tuple[str, str, list[str]]:
    """What happened, why, and what to try, for an exception that is no `UserError`."""
    if isinstance(error, FileNotFoundError) and error.filename:
        return (
            f"A file is gone: {Path(str(error.filename)).name}",
            f"The page was about to read {error.filename}. Its folder was moved or removed while it was open.",
            [
                "Reload the page: the picker then lists what is there.",
                "A dataset that was moved: start the app with its new folder, `tcl app DIR`.",
            ],
        )
    if isinstance(error, PermissionError) and error.filename:
        return (
            "A file may not be opened",
            f"This user may not read or write {error.filename}.",
            ["Give the user that runs the app the right to it.", "Or set TCL_WORKSPACE to a folder of your own, and start the app again."],
        )
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "The disk is full",
            f"There was no room to write in {workspace()}.",
            ["Remove ended jobs (Jobs, Clean up), and datasets and models in the workspace that are no longer needed.", RELOAD],
        )
    if isinstance(error, MemoryError):
        return (
            "There was not enough memory",
            "The page asked for more than this machine has left, most likely because very many programs are shown.",
            ["Choose a network or a task instead of everything.", "End other programs, or wait for running jobs, and reload the page."],
        )
    if isinstance(error, ArrowException):
        return (
            "A file of the dataset cannot be read",
            f"It is not what it should be, or only a part of it is there: {str(error).splitlines()[0][:200]}",
            ["`tcl data validate DIR` says which file it is.", "Copy the dataset once more from where it came from, then reload the page."],
        )
    place = _place(error)
    where = f" in {place}" if place else ""
    return (
        "This part of the page could not be made",
        f"It met {type(error).__name__}{where}, which nobody foresaw: a mistake in this program, not in what you did.",
        [RELOAD, "Tell us, with the details below and what you did last: then it can be put right."],
    )


def _place(error: Exception) -> str:
    """The innermost line of this project that the exception came through, as "app/x.py, line 3"."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.is_relative_to(ROOT) and ".venv" not in path.parts:
            return f"{path.relative_to(ROOT)}, line {frame.lineno}"
    return ""
