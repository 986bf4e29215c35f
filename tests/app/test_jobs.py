"""The Jobs page: a pinned job is what others on the same subject are compared with."""

from __future__ import annotations

from pathlib import Path

from streamlit.testing.v1 import AppTest

from tcl.files import write_json

MAIN = str(Path(__file__).parent.parent.parent / "app" / "main.py")


def ended(workspace: Path, number: int, argv: list[str], result: dict) -> str:
    folder = workspace / "jobs" / f"20260101-00000{number}-{argv[0]}-000{number}"
    folder.mkdir(parents=True)
    write_json(folder / "job.json", {"kind": argv[0], "argv": argv, "cwd": str(workspace), "created": float(number)})
    write_json(folder / "state.json", {"state": "done"})
    write_json(folder / "result.json", result)
    return folder.name


def test_others_on_the_same_subject_are_compared_with_the_pinned_job(tmp_path, monkeypatch):
    monkeypatch.setenv("TCL_WORKSPACE", str(tmp_path))
    monkeypatch.setenv("TCL_APP_BUILTIN", "0")
    ended(tmp_path, 1, ["tune", "matmul:8,8,8"], {"best_latency_s": 1e-3})
    pinned = ended(tmp_path, 2, ["tune", "matmul:8,8,8"], {"best_latency_s": 2e-3})
    ended(tmp_path, 3, ["tune", "matmul:9,9,9"], {"best_latency_s": 1e-3})
    ended(tmp_path, 4, ["train", "data"], {"top1": 0.9})
    at = AppTest.from_file(MAIN, default_timeout=60).run().switch_page("app_pages/jobs.py").run()
    assert "against the pinned" not in at.dataframe[0].value
    at.query_params["job"] = pinned
    at.run()
    next(b for b in at.button if b.label == "Pin").click().run()
    assert not at.exception and at.query_params["baseline"] in (pinned, [pinned])
    assert at.dataframe[0].value["against the pinned"].tolist() == ["", "", "1.00 ×", "0.50 ×"]
    next(b for b in at.button if b.label == "Unpin").click().run()
    assert "against the pinned" not in at.dataframe[0].value
