"""Imports under attack: fuzzed lines, two at once, killed in the middle."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tcl.programs.dataset import Dataset
from tcl.programs.validate import validate
from tcl.records import sources
from tcl.records.importer import import_logs
from tests.records.samples import ansor, autotvm, autotvm_old, new_module, program, trace, tuning, workload, write

GOOD = [json.dumps(ansor(0.001 * (i + 1), steps=program(i))).encode() for i in range(4)]
SEEDS = [json.dumps(v).encode() for v in (ansor(), autotvm(), autotvm_old(), tuning(), workload(new_module()), trace())]
FUZZ = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


@st.composite
def cut(draw) -> bytes:
    line = draw(st.sampled_from(SEEDS))
    first, last = sorted((draw(st.integers(0, len(line))), draw(st.integers(0, len(line)))))
    return draw(st.sampled_from([line[:first], line[first:], line[:first] + line[last:], line[first:last] * 2]))


@st.composite
def recoded(draw) -> bytes:
    line = draw(st.sampled_from(SEEDS))
    how = draw(st.sampled_from(["utf-16", "utf-32", "utf-8-sig"]))
    return draw(st.sampled_from([line.decode().encode(how).replace(b"\n", b" "), line.replace(b"a", b"\xe9"), line.replace(b" ", b"\x00")]))


@st.composite
def nested(draw) -> bytes:
    depth = draw(st.sampled_from([1, 50, 1000, 100_000]))
    opening, closing = draw(st.sampled_from([(b"[", b"]"), (b'{"i":', b"}")]))
    return opening * depth + draw(st.sampled_from(SEEDS)) + closing * draw(st.sampled_from([0, depth]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**30), 10**30) | st.floats() | st.text(max_size=8) | st.sampled_from(["SP", "AN", "b0"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["i", "r", "v", "input", "x"]), inner, max_size=3),
    max_leaves=8,
)


@st.composite
def swapped(draw) -> bytes:
    """A record with one of its values, anywhere, replaced by another."""
    value = json.loads(draw(st.sampled_from(SEEDS)))
    place = value
    for _ in range(draw(st.integers(0, 6))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or draw(st.integers(0, 3)) == 0:
            place[key] = draw(JSON)
            break
        place = place[key]
    return json.dumps(value).encode()


LINE = st.one_of(cut(), recoded(), nested(), swapped(), JSON.map(lambda v: json.dumps(v).encode()), st.binary(max_size=60)).map(
    lambda line: line.replace(b"\n", b" ").replace(b"\r", b" ")
)


HEADS = [b"", b"\x1f\x8b", b"PK\x03\x04", b"BZh9", b"\xfd7zXZ\x00", b"\xff\xfe", b"\x80\x04"]


@FUZZ
@given(bad=st.lists(LINE, min_size=1, max_size=6), where=st.integers(0, 6))
def test_no_line_stops_an_import_or_takes_a_good_record_with_it(tmp_path_factory, bad, where):
    folder = tmp_path_factory.mktemp("fuzz")
    lines = [GOOD[0], *bad[:where], GOOD[1], *bad[where:], GOOD[2]]
    path = write(folder / "x.log", *lines)
    write(folder / "y.log", GOOD[3])
    summary = import_logs([path, folder / "y.log"], folder / "d", "p")
    assert summary.lines == summary.imported + summary.duplicates + sum(summary.refused.values())
    dataset = Dataset.open(folder / "d")
    kept = set(dataset.programs()["schedule"])
    assert kept >= {json.dumps(program(i), separators=(",", ":")) for i in range(4)}
    assert validate(dataset) == []


@FUZZ
@given(raw=st.binary(max_size=400), head=st.sampled_from(HEADS))
def test_no_file_stops_an_import(tmp_path_factory, raw, head):
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "x").write_bytes(head + raw)
    write(folder / "y.log", GOOD[0])
    assert import_logs([folder / "x", folder / "y.log"], folder / "d", "p").imported >= 1


@FUZZ
@given(
    changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=8),
    pack=st.sampled_from(["zip", "gz", "tar"]),
)
@example(changes=[(8656, 0)], pack="zip")  # an entry whose name is empty
def test_damaged_archives(tmp_path_factory, changes, pack):
    import gzip
    import io
    import tarfile
    import zipfile

    folder = tmp_path_factory.mktemp("fuzz")
    body, buffer = b"\n".join(GOOD), io.BytesIO()
    if pack == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("a.log", body)
            archive.writestr("b.log", body)
    elif pack == "tar":
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            info = tarfile.TarInfo("a.log")
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    else:
        buffer.write(gzip.compress(body))
    raw = bytearray(buffer.getvalue())
    for place, value in changes:
        raw[place % len(raw)] = value
    (folder / "x").write_bytes(raw)
    write(folder / "y.log", GOOD[0])
    assert import_logs([folder / "x", folder / "y.log"], folder / "d", "p").imported >= 1


def test_a_line_of_100_mb(tmp_path):
    with (tmp_path / "x.log").open("wb") as file:
        file.write(GOOD[0] + b"\n[")
        for _ in range(100):
            file.write(b"1," * (1 << 19))
        file.write(b"1]\n" + GOOD[1] + b"\n")
    summary = import_logs([tmp_path / "x.log"], tmp_path / "d", "p")
    assert summary.imported == 2 and summary.refused == {"a line that is longer than 32 MB": 1}


def test_a_deep_line_below_the_limit(tmp_path):
    path = write(tmp_path / "x.log", GOOD[0], b"[" * 5_000_000, b'{"a":' * 1_000_000, GOOD[1])
    assert import_logs([path], tmp_path / "d", "p").imported == 2


def test_nothing_in_a_log_is_run(tmp_path, monkeypatch):
    import builtins
    import pickle

    # Python's own import statement calls exec: import everything that an import needs before forbidding it.
    import_logs([write(tmp_path / "first.log", GOOD[0])], tmp_path / "first", "p")

    def forbidden(*_args, **_kwargs):
        raise AssertionError("a log was run")

    for name in ("eval", "exec"):
        monkeypatch.setattr(builtins, name, forbidden)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, forbidden)
    path = write(tmp_path / "logs" / "x.log", "__import__('os').system('touch evil')", ansor(key=["__import__('os')", 1]), GOOD[0])
    (path.parent / "all_tasks.pkl").write_bytes(b"\x80\x04cos\nsystem\n(S'touch evil'\ntR.")
    summary = import_logs([path.parent], tmp_path / "d", "p")
    assert summary.imported == 2 and any("pickle" in reason for reason in summary.skipped.values())


def _import(path: str, out: str) -> None:
    import_logs([path], out, "p")


def test_two_at_once(tmp_path):
    shared = [ansor(steps=program(i)) for i in range(300)]
    own = {name: [ansor(steps=program(i)) for i in range(n, n + 300)] for name, n in (("a", 1000), ("b", 2000))}
    paths = [write(tmp_path / f"{name}.log", *shared, *lines) for name, lines in own.items()]
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_import, args=(str(p), str(tmp_path / "d"))) for p in (*paths, paths[0])]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert [w.exitcode for w in workers] == [0, 0, 0]
    dataset = Dataset.open(tmp_path / "d")
    assert dataset.stats()["programs"] == dataset.stats()["measurements"] == 900 and validate(dataset) == []


@pytest.mark.parametrize("moment", [0.25, 0.6])
def test_killed_in_the_middle(tmp_path, moment):
    """A killed import leaves the old state; the next one finishes the work."""
    first = write(tmp_path / "a.log", *[ansor(steps=program(i)) for i in range(100)])
    import_logs([first], tmp_path / "d", "p")
    before = Dataset.open(tmp_path / "d")
    big = tmp_path / "b.log"
    with big.open("w") as file:
        for i in range(60_000):
            file.write(json.dumps(ansor(steps=program(1000 + i))) + "\n")
    code = (
        "import sys\nfrom tcl.progress import Progress\nfrom tcl.records.importer import import_logs\n"
        "class Tell(Progress):\n    def step(self, done, total, message=''):\n        print(done / total, flush=True)\n"
        f"import_logs([{str(big)!r}], {str(tmp_path / 'd')!r}, 'p', Tell())\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    for line in child.stdout:
        if float(line) >= moment:
            os.kill(child.pid, signal.SIGKILL)
            break
    child.wait(60)
    assert child.returncode == -signal.SIGKILL
    after = Dataset.open(tmp_path / "d")
    assert after.version == before.version and len(after.measurements()) == 100 and validate(after) == []
    for path in tmp_path.joinpath("d").rglob("*.parquet"):  # as if the crash were long ago
        os.utime(path, (time.time() - 3600,) * 2)
    assert import_logs([big], tmp_path / "d", "p").imported == 60_000
    dataset = Dataset.open(tmp_path / "d")
    assert len(dataset.measurements(["record"])) == 60_100
    named = {part["file"] for parts in dataset.manifest["tables"].values() for part in parts}
    left = {str(p.relative_to(dataset.path)) for p in dataset.path.glob("*.parquet/*.parquet") if not p.name.startswith(".")}
    assert left == named
    hidden = list(Path(dataset.path).glob("*.parquet/.*"))
    assert not hidden, hidden


def test_stopping_an_import_leaves_the_old_state(tmp_path):
    from tcl.progress import Progress, Stopped

    class Stop(Progress):
        def check(self):
            raise Stopped

    path = write(tmp_path / "a.log", *GOOD)
    with pytest.raises(Stopped):
        import_logs([path], tmp_path / "d", "p", Stop())
    assert Dataset.open(tmp_path / "d").stats()["measurements"] == 0
    assert import_logs([path], tmp_path / "d", "p").imported == 4


def test_growth_guard_lets_real_logs_through():
    """Search logs shrink 10 to 40 times; the limit is far above."""
    assert sources.GREATEST_GROWTH >= 100
