"""Importing: every format, every kind of bad line, counts that add up."""

import bz2
import gzip
import io
import lzma
import pickle
import tarfile
import zipfile
from pathlib import Path

import pytest

from tcl.errors import UserError
from tcl.programs.dataset import Dataset
from tcl.records import sources
from tcl.records.importer import Summary, import_logs
from tcl.records.platform_map import NamedPlatform, PlatformMap
from tests.records.samples import (
    CONV_KEY,
    CONV_STEPS,
    ansor,
    autotvm,
    autotvm_old,
    new_module,
    old_module,
    program,
    trace,
    tuning,
    workload,
    write,
)

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
needs_shared = pytest.mark.skipif(not SHARED.exists(), reason="the shared folder of published logs is not here")


def run(tmp_path, *paths, platform="p", out="d") -> tuple[Summary, Dataset]:
    summary = import_logs(paths, tmp_path / out, platform)
    assert summary.lines == summary.imported + summary.duplicates + sum(summary.refused.values())
    return summary, Dataset.open(tmp_path / out)


def test_ansor_record_becomes_task_program_measurement(tmp_path):
    summary, dataset = run(tmp_path, write(tmp_path / "a.log", ansor(0.002), ansor([0.003, 0.001, 0.002], steps=program(7))))
    assert (summary.lines, summary.imported, summary.tasks, summary.programs) == (2, 2, 1, 2)
    task = dataset.task_list()[0]
    assert (task.operator, task.format, task.extents) == ("conv2d", "ansor", (4, 8, 14, 14, 16, 1, 1))
    assert task.flops == 2 * 4 * 8 * 14 * 14 * 16 and task.workload == '["conv2d_layer",4,16,14,14,8,1,1,1]'
    rows = dataset.measurements().sort_values("latency_s")
    assert rows["latency_s"].tolist() == [0.002, 0.002] and rows["measured_at"].tolist() == [1600000000.0] * 2
    assert sorted(list(c) for c in rows["costs_s"]) == [[0.002], [0.003, 0.001, 0.002]]
    assert dataset.platforms()["p"].kind == "gpu"  # the schedule binds threads; the target string is not looked at


def test_padding_argument_makes_no_other_task(tmp_path):
    lines = [ansor(key=[*CONV_KEY[:-1], padding], steps=program(i)) for i, padding in enumerate(("SAME", "VALID", 0))]
    _, dataset = run(tmp_path, write(tmp_path / "a.log", *lines))
    assert len(dataset.task_list()) == 1 and len(dataset.programs()) == 3


def test_same_schedule_measured_again_keeps_all_costs_and_the_best_is_the_label(tmp_path):
    lines = [ansor(0.004), ansor(0.002, stamp=2), ansor(1e10, error=4, stamp=3), ansor(0.004)]
    summary, dataset = run(tmp_path, write(tmp_path / "a.log", *lines))
    assert (summary.imported, summary.duplicates, summary.remeasured, summary.repeated) == (1, 3, 2, 1)
    row = dataset.labels().iloc[0]
    assert (row["latency_s"], row["error"], row["measurements"], row["label"]) == (0.002, "", 3, 1.0)


@pytest.mark.parametrize(
    ("costs", "error", "kind"),
    [
        ([1e10], 0, "bad_cost"), ([1e9], 0, "bad_cost"), ([0], 0, "bad_cost"), ([-1.0], 0, "bad_cost"), ([float("nan")], 0, "bad_cost"),
        ([0.1, 1e10], 0, "bad_cost"), ([float("inf")], 0, "bad_cost"), ([1e10], 1, "invalid_schedule"), ([1e10], 2, "build_error"),
        ([0.001], 4, "run_error"), ([1e10], 5, "wrong_output"), ([1e10], 6, "build_timeout"), ([1e10], 7, "run_timeout"),
        ([1e10], 99, "unknown_error"),
    ],
)  # fmt: skip
def test_failures_by_kind(tmp_path, costs, error, kind):
    summary, dataset = run(tmp_path, write(tmp_path / "a.log", ansor(costs, error=error)))
    assert summary.failed == {kind: 1} and summary.imported == 1
    assert dataset.labels()["label"].tolist() == [0.0]


def test_bad_lines_are_counted_by_reason_and_the_rest_is_imported(tmp_path):
    lines = [
        ansor(steps=program(1)),
        ansor(steps=[["XX", 1]]),
        ansor(steps=[["SP", 3, 0, "4", [1, 2], 1]]),
        ansor(steps="steps"),
        ansor(version="v9"),
        ansor(key={"a": 1}),
        "{\"i\": [[\"[\\\"conv2d",
        "Some text of a console",
        "[128, 512]",
        "",
        b"\xff\xfe\xfa",
        {"i": 1, "r": 2, "v": "v0.6"},
        ansor(cost=["x"]),
        ansor(error="0"),
        ansor(steps=program(2)),
    ]  # fmt: skip
    summary, _ = run(tmp_path, write(tmp_path / "a.log", *lines))
    assert summary.imported == 2 and summary.blank == 1
    assert summary.refused == {
        "unknown primitive 'XX'": 1,
        "a malformed SP step": 1,
        "an Ansor record without steps": 1,
        "an Ansor record of a version this reader does not know: v9": 1,
        "a workload key that is not a list with a name": 1,
        "a line cut off or damaged: it is not whole JSON": 1,
        "not a record: a line of other text": 2,
        "not a record of a known format": 1,
        "an Ansor record whose parts do not fit together": 1,
        "malformed result": 2,
    }
    where = {e["reason"]: e["line"] for e in summary.refused_lines}
    assert where["a malformed SP step"] == 3 and where["a workload key that is not a list with a name"] == 6


def test_autotvm_versions_are_one_task(tmp_path):
    lines = [autotvm(i=1), autotvm(i=2, padding=0), autotvm_old(i=4), autotvm(1e9, 1, i=8)]
    summary, dataset = run(tmp_path, write(tmp_path / "a.log", *lines))
    assert summary.imported == 4 and summary.failed == {"invalid_schedule": 1} and summary.by_format == {"autotvm": 4}
    (task,) = dataset.task_list()
    assert (task.operator, task.extents, task.format) == ("conv2d", (4, 8, 14, 14, 16, 1, 1), "autotvm")


def test_autotvm_bad_lines(tmp_path):
    bad = autotvm()
    bad["config"] = {"entity": [["a", "zz", 1]]}
    summary, _ = run(tmp_path, write(tmp_path / "a.log", bad, autotvm() | {"version": 0.3}, autotvm() | {"input": []}, autotvm()))
    assert summary.imported == 1 and sum(summary.refused.values()) == 3 and len(summary.refused) == 3


@pytest.mark.parametrize(("old", "plain"), [(False, False), (True, False), (False, True)])
def test_metaschedule_database_of_either_schema(tmp_path, old, plain):
    folder = tmp_path / "db"
    write(folder / "database_workload.json", workload(old_module() if old else new_module(), plain))
    write(
        folder / "database_tuning_record.json",
        *[tuning(tile=t, old=old) for t in (2, 4)], tuning(costs=[1e10], tile=8), tuning(7), tuning(costs=None), [0, [[1], [0.1]]],
    )  # fmt: skip
    summary, dataset = run(tmp_path, folder)
    assert (summary.lines, summary.imported, summary.failed) == (6, 3, {"bad_cost": 1})
    assert summary.refused == {
        "a MetaSchedule record of a workload that its database does not hold": 1,
        "a MetaSchedule record that was never measured": 1,
        "a malformed MetaSchedule trace: not a trace": 1,
    }
    (task,) = dataset.task_list()
    assert (task.operator, task.extents, task.flops) == ("matmul", (64, 32, 16), 2.0 * 64 * 32 * 16)
    assert task.bytes == 4 * (64 * 16 + 16 * 32 + 64 * 32)
    assert all("EnterPostproc" not in s and "GetBlock" not in s for s in dataset.programs()["schedule"])


def test_metaschedule_record_file_alone_finds_its_workloads_and_says_when_it_cannot(tmp_path):
    write(tmp_path / "db" / "x_workload.json", workload(new_module()))
    records = write(tmp_path / "db" / "x_tuning_record.json", tuning())
    assert run(tmp_path, records)[0].imported == 1
    lonely = write(tmp_path / "other" / "x_tuning_record.json", tuning())
    summary, _ = run(tmp_path, lonely, out="e")
    assert summary.refused == {"a MetaSchedule record without the workload file beside it": 1}


def test_two_databases_in_one_folder_are_told_apart_by_name(tmp_path):
    for name, block in (("a", "matmul"), ("b", "softmax")):
        write(tmp_path / "db" / f"{name}_workload.json", workload(new_module(block=block)))
        write(tmp_path / "db" / f"{name}_tuning_record.json", tuning())
    _, dataset = run(tmp_path, tmp_path / "db")
    assert sorted(t.operator for t in dataset.task_list()) == ["matmul", "softmax"]


def test_a_damaged_workload_costs_only_its_own_records(tmp_path):
    write(tmp_path / "db" / "database_workload.json", workload(new_module()), ["123", "!!!"], workload(new_module((8, 8, 8))))
    write(tmp_path / "db" / "database_tuning_record.json", tuning(0), tuning(1), tuning(2))
    summary, dataset = run(tmp_path, tmp_path / "db")
    assert summary.imported == 2 and summary.refused == {"a workload whose module is damaged": 2} and len(dataset.task_list()) == 2


def test_variable_names_and_postprocessing_make_no_other_program(tmp_path):
    renamed = new_module()
    for node in renamed["nodes"]:
        if node["type"] == "ffi.String" and node["data"].startswith("v_"):
            node["data"] = node["data"].replace("v_", "other")
    write(tmp_path / "a" / "database_workload.json", workload(new_module()))
    write(tmp_path / "a" / "database_tuning_record.json", tuning(postproc=True))
    write(tmp_path / "b" / "database_workload.json", workload(new_module()))
    write(tmp_path / "b" / "database_tuning_record.json", tuning(postproc=False, old=True))
    _, dataset = run(tmp_path, tmp_path / "a", tmp_path / "b")
    assert len(dataset.task_list()) == 1 and len(dataset.programs()) == 1


@pytest.mark.parametrize("pack", ["gz", "bz2", "xz", "zip", "zip-gz", "tar", "tar.gz", "utf16", "bom", "crlf", "no-newline"])
def test_packed_and_recoded(tmp_path, pack):
    raw = write(tmp_path / "plain", ansor(steps=program(1)), ansor(steps=program(2))).read_bytes()
    path = tmp_path / "logs" / "x.log"  # the name says nothing
    path.parent.mkdir()
    if pack in ("zip", "zip-gz"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("v100/a.log", gzip.compress(raw) if pack == "zip-gz" else raw)
            archive.writestr("__MACOSX/._a.log", b"junk")
    elif pack.startswith("tar"):
        with tarfile.open(path, "w:gz" if pack == "tar.gz" else "w") as archive:
            info = tarfile.TarInfo("v100/a.log")
            info.size = len(raw)
            archive.addfile(info, io.BytesIO(raw))
    else:
        recode = {
            "gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "utf16": lambda b: b.decode().encode("utf-16"),
            "bom": lambda b: b"\xef\xbb\xbf" + b, "crlf": lambda b: b.replace(b"\n", b"\r\n"), "no-newline": bytes.rstrip,
        }  # fmt: skip
        path.write_bytes(recode[pack](raw))
    summary, _ = run(tmp_path, path.parent)
    assert summary.imported == 2 and not summary.refused, summary


def test_metaschedule_in_a_zip_though_records_come_first(tmp_path):
    with zipfile.ZipFile(tmp_path / "db.zip", "w") as archive:
        for name, path in (
            ("x/database_tuning_record.json", write(tmp_path / "r", tuning())),
            ("x/database_workload.json", write(tmp_path / "w", workload(new_module()))),
        ):
            archive.write(path, name)
    assert run(tmp_path, tmp_path / "db.zip")[0].imported == 1


def test_truncated_gzip_keeps_what_came_before(tmp_path):
    raw = write(tmp_path / "plain", *[ansor(steps=program(i)) for i in range(2000)]).read_bytes()
    (tmp_path / "a.gz").write_bytes(gzip.compress(raw)[:-2000])
    summary, _ = run(tmp_path, tmp_path / "a.gz")
    assert summary.imported > 100 and summary.refused["a compressed file that is cut off or damaged"] == 1


def test_hostile_archives_are_refused_and_the_rest_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "ALWAYS_ALLOWED", 1 << 16)
    good = write(tmp_path / "plain", ansor()).read_bytes()
    with zipfile.ZipFile(tmp_path / "x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../evil.log", good)
        archive.writestr("/abs.log", good)
        archive.writestr("bomb.log", b"0" * (32 << 20))
        archive.writestr("inner.zip", (tmp_path / "plain").read_bytes().replace(good[:4], b"PK\x03\x04"))
        archive.writestr("tasks.pkl", pickle.dumps([1]))
        archive.writestr("good.log", good)
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"0" * (32 << 20)))
    summary, _ = run(tmp_path, tmp_path / "x.zip", tmp_path / "bomb.gz")
    assert summary.imported == 1
    reasons = " ".join(summary.skipped.values()) + " ".join(summary.refused)
    for words in ("leads out of the archive", "grow beyond measure", "archive inside an archive", "pickle"):
        assert words in reasons
    assert not (tmp_path.parent / "evil.log").exists()


def test_overlong_line_is_refused_without_holding_it(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "LONGEST_LINE", 1 << 16)
    path = write(tmp_path / "a.log", ansor(steps=program(1)), b"x" * (3 << 20), ansor(steps=program(2)))
    summary, _ = run(tmp_path, path)
    assert summary.imported == 2 and summary.refused == {"a line that is longer than 32 MB": 1}
    assert summary.refused_lines[0]["line"] == 2


def test_second_run_adds_nothing(tmp_path):
    path = write(tmp_path / "a.log", *[ansor(steps=program(i)) for i in range(50)])
    run(tmp_path, path)
    version = Dataset.open(tmp_path / "d").version
    summary, dataset = run(tmp_path, path)
    assert (summary.imported, summary.duplicates, summary.repeated) == (0, 50, 50)
    assert dataset.version == version and dataset.stats()["measurements"] == 50


def test_platform_map_by_folder(tmp_path):
    for name in ("v100", "k80"):
        write(tmp_path / "logs" / name / "conv" / "a.log", ansor())
    (tmp_path / "map").write_text("# folders\nv100/ -> nvidia-v100\nk80 = nvidia-k80\n")
    summary, dataset = run(tmp_path, tmp_path / "logs", platform=PlatformMap.read(tmp_path / "map"))
    assert sorted(dataset.platforms()) == ["nvidia-k80", "nvidia-v100"] and summary.programs == 1 and summary.imported == 2
    (tmp_path / "map.json").write_text('{"v100": {"name": "x", "kind": "cpu"}}')
    with pytest.raises(UserError, match=r"names no folder of .*k80"):
        import_logs([tmp_path / "logs"], tmp_path / "e", PlatformMap.read(tmp_path / "map.json"))
    assert not (tmp_path / "e").exists()


def test_mistakes_are_told(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        import_logs([tmp_path / "none"], tmp_path / "d", "p")
    with pytest.raises(UserError, match="cannot name a platform"):
        NamedPlatform("a b")
    (tmp_path / "map").write_text("v100 nvidia")
    with pytest.raises(UserError, match="line 1"):
        PlatformMap.read(tmp_path / "map")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="no file"):
        import_logs([tmp_path / "empty"], tmp_path / "d", "p")


def test_what_is_known_of_a_platform_stays(tmp_path):
    path = write(tmp_path / "a.log", ansor())
    run(tmp_path, path, platform=NamedPlatform("p", "gpu", "described"))
    run(tmp_path, path, platform=NamedPlatform("p"))
    assert Dataset.open(tmp_path / "d").platforms()["p"].description == "described"


def test_cpu_schedules_make_a_cpu_platform(tmp_path):
    _, dataset = run(tmp_path, write(tmp_path / "a.log", ansor(steps=[s for s in CONV_STEPS if s[0] != "AN"])))
    assert dataset.platforms()["p"].kind == "cpu"


def test_tenset_hash_key_takes_extents_from_the_loops(tmp_path):
    key = ["0bcb5ed2d0ed2f8c7d6d8b0a7ce1a6dd", 4, 16, 14, 14, 8, 16, 1, 1]
    _, dataset = run(tmp_path, write(tmp_path / "a.log", ansor(key=key, version="v0.5")))
    (task,) = dataset.task_list()
    assert task.operator == "conv2d" and task.extents == (4, 8, 14, 14, 16, 1, 1) and task.workload.startswith('["0bcb5ed2')


@needs_shared
def test_three_gpus_share_their_tasks(tmp_path):
    mapping = PlatformMap(tuple(((name,), NamedPlatform(name)) for name in ("v100", "k80", "mi50")))
    folders = [SHARED / "roller_osdi22" / gpu / kind for gpu in ("v100", "k80", "mi50") for kind in ("reduction", "elementwise", "pooling")]
    summary, dataset = run(tmp_path, *folders, platform=mapping)
    assert not summary.refused and summary.remeasured == 440
    rows = dataset.measurements(["task", "platform"])
    assert (rows.groupby("task")["platform"].nunique() == 3).sum() == 45


@needs_shared
@pytest.mark.parametrize(
    ("name", "imported", "refused"),
    [
        ("odd_logs/ansor_every_measurement_failed.json", 120, 0), ("odd_logs/ansor_truncated_mid_record.log", 15, 1),
        ("odd_logs/empty.log", 0, 0), ("odd_logs/console_output_not_records.log", 0, 300), ("autotvm", 2700, 0), ("metaschedule", 33, 0),
    ],
)  # fmt: skip
def test_published_odd_logs(tmp_path, name, imported, refused):
    summary, _ = run(tmp_path, SHARED / name)
    assert (summary.imported, sum(summary.refused.values())) == (imported, refused)


def test_trace_normalisation_is_idempotent():
    import json

    from tcl.programs.metaschedule_text import trace_text

    once = trace_text(trace())
    assert trace_text(json.loads(once)) == once
    dead = trace()
    dead[0].insert(1, ["GetLoops", ["b0"], [], ["l20"]])
    dead[1] = [[3, [16, 4]], [5, 1]]
    assert trace_text(dead) == once
