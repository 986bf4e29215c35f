"""The lessons on pages: one file a lesson, each with `show()`. What they say is computed in `tcl/lessons`."""
