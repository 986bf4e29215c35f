"""`tcl data`: one JSON object on standard output, exit statuses, messages without a traceback."""

import json
import subprocess
import sys

import pytest

from tests.records.samples import ansor, program, write


def tcl(*args, ok=True):
    done = subprocess.run([sys.executable, "-m", "tcl.cli", "data", *map(str, args)], capture_output=True, text=True, check=False)
    if not done.stdout and not done.stderr:  # tcl.cli has no __main__ guard: call its entry point
        code = "import sys; sys.argv[0] = 'tcl'; from tcl.cli import main; main()"
        done = subprocess.run([sys.executable, "-c", code, "data", *map(str, args)], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and (done.returncode == 0) == ok, done.stderr
    return done


@pytest.fixture
def folder(tmp_path):
    write(tmp_path / "a.log", *[ansor(0.001 * (i + 1), steps=program(i)) for i in range(20)], ansor(steps=[["ZZ"]]))
    done = tcl("import", tmp_path / "a.log", "--platform", "p", "--out", tmp_path / "d", "--json")
    got = json.loads(done.stdout)
    assert (got["lines"], got["imported"], got["duplicates"], got["failed"]) == (21, 20, 0, {})
    assert got["refused"] == {"unknown primitive 'ZZ'": 1} and "a.log:21" in done.stderr
    return tmp_path / "d"


def test_all_subcommands(folder, tmp_path):
    stats = json.loads(tcl("stats", folder, "--json").stdout)
    assert (stats["platforms"], stats["tasks"], stats["programs"], stats["measurements"], stats["failures"]) == (1, 1, 20, 20, 0)
    assert stats["by_platform"]["p"]["measurements"] == 20 and stats["by_operator"]["conv2d"]["tasks"] == 1
    assert json.loads(tcl("validate", folder, "--json").stdout)["sound"] is True
    split = json.loads(tcl("split", folder, "--by", "within-task", "--out", tmp_path / "s.json", "--json").stdout)
    assert sum(split["measurements"].values()) == 20
    assert json.loads(tcl("export", folder, "--format", "ansor", "--out", tmp_path / "x.json", "--json").stdout)["written"] == 20
    assert {e["name"] for e in json.loads(tcl("catalog", "--json").stdout)["datasets"]} >= {"tenset", "roller", "tcl-paper"}


def test_mistakes(folder, tmp_path):
    assert "is not a dataset" in tcl("stats", tmp_path, ok=False).stderr
    assert "--platform NAME or --platforms-map" in tcl("import", tmp_path / "a.log", "--out", tmp_path / "e", ok=False).stderr
    assert "no export format" in tcl("export", folder, "--out", tmp_path / "x", "--format", "zz", ok=False).stderr
    empty = write(tmp_path / "empty.log")
    done = tcl("import", empty, "--platform", "p", "--out", tmp_path / "e", "--json", ok=False)
    assert json.loads(done.stdout)["imported"] == 0 and "an empty file" in done.stderr
    part = next((folder / "programs.parquet").glob("*.parquet"))
    part.write_bytes(b"junk")
    done = tcl("validate", folder, "--json", ok=False)
    assert json.loads(done.stdout)["sound"] is False and "cannot be read" in done.stderr
