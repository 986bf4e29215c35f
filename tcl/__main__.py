"""`python -m tcl`: the same as the `tcl` command, for a Python that is not on the path."""

from tcl.cli import main

main()
