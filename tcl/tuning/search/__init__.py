"""Search strategies: which programs of a task to measure next. One file each, behind `tcl.tuning.search.base.Search`."""
