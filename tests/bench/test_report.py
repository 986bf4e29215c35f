"""A benchmark's result says what its command was asked, and the command made from that asks the same."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tcl.bench.report import again, number
from tcl.cli import cli
from tcl.commands.bench import BENCHES, _settings
from tcl.workspace import ASSETS


def test_a_result_made_again_by_its_own_command(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    chosen = ["--set", 'models=["random"]', "--set", "seeds=[3]", "--set", "per_assignment=4", "--set", f"folder={tmp_path / 'cells'}"]
    outcome = CliRunner().invoke(cli, ["bench", "models", *chosen, "--out", str(first)])
    assert outcome.exit_code == 0, outcome.output
    result = json.loads(first.read_text())
    assert result["asked"] == {"models": ["random"], "seeds": [3], "per_assignment": 4}
    outcome = CliRunner().invoke(cli, ["bench", "models", *again(result), "--set", f"folder={tmp_path / 'cells'}", "--out", str(second)])
    assert outcome.exit_code == 0, outcome.output
    assert json.loads(second.read_text()) == result


@pytest.mark.parametrize("file", sorted((ASSETS / "results").glob("*.json")), ids=lambda file: file.stem)
def test_shipped_results_name_a_command_that_is_accepted(file: Path) -> None:
    result = json.loads(file.read_text())
    assert result["asked"], "a shipped result that no command reproduces"
    function = importlib.import_module(BENCHES[result["bench"]]).run
    assert _settings(function, result["bench"], again(result)[1::2]) == result["asked"]


def test_numbers_can_be_read() -> None:
    assert [number(v) for v in (26627.6, 20_000.0, 16.8, 0.98765, 1e12)] == ["26,628", "20,000", "16.8", "0.9877", "1e+12"]
