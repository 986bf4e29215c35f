"""The one exception for what a user can put right: bad input, a missing file, a busy port, a full disk."""

from __future__ import annotations


class UserError(Exception):
    """Says what went wrong, where, and what to do, in one sentence a person can act on.

    The command line prints it on standard error and ends with `exit_status`; the app shows it in place of a traceback.
    """

    def __init__(self, message: str, *, hint: str = "", exit_status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.exit_status = exit_status

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()
