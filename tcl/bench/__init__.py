"""Side-by-side benchmarks behind `tcl bench`: one file a benchmark, each `run(*, progress, …)` returns one plain dict."""
