"""The columns of a dataset's tables, as Arrow schemas. Ids are signed 64-bit content hashes (`tcl.programs.types.content_id`)."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from tcl.programs.types import Measurement, NetworkUse, Program, Task

TASKS = pa.schema(
    [
        ("task", pa.int64()),
        ("name", pa.string()),
        ("operator", pa.string()),
        ("format", pa.string()),
        ("workload", pa.string()),
        ("extents", pa.list_(pa.int64())),
        ("flops", pa.float64()),
        ("bytes", pa.float64()),
        ("group", pa.int64()),  # near-duplicate workloads share it; a split keeps a group on one side
        ("networks", pa.list_(pa.struct([("network", pa.string()), ("weight", pa.float64())]))),
    ]
)

PROGRAMS = pa.schema([("program", pa.int64()), ("task", pa.int64()), ("schedule", pa.string())])

MEASUREMENTS = pa.schema(
    [
        ("record", pa.int64()),  # the measurement's own identity: equal for the same record read twice
        ("program", pa.int64()),
        ("task", pa.int64()),
        ("platform", pa.dictionary(pa.int32(), pa.string())),
        ("costs_s", pa.list_(pa.float64())),  # one a repeat; empty for a failure
        ("latency_s", pa.float64()),  # median of the repeats; NaN for a failure
        ("error", pa.dictionary(pa.int32(), pa.string())),  # "" or a failure kind
        ("detail", pa.string()),
        ("measured_at", pa.float64()),  # Unix time, seconds; 0 where unknown
        ("source", pa.dictionary(pa.int32(), pa.string())),
    ]
)

TABLES = {"tasks": TASKS, "programs": PROGRAMS, "measurements": MEASUREMENTS}


def tasks_table(tasks: Iterable[Task]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "task": t.id, "name": t.name, "operator": t.operator, "format": t.format, "workload": t.workload,
                "extents": list(t.extents), "flops": t.flops, "bytes": t.bytes, "group": t.group,
                "networks": [{"network": u.network, "weight": u.weight} for u in t.networks],
            }
            for t in tasks
        ],
        TASKS,
    )  # fmt: skip


def tasks_from_table(table: pa.Table) -> list[Task]:
    """The tasks of a table; rows of one task (written at different times) are joined, their networks united."""
    found: dict[int, Task] = {}
    for row in table.to_pylist():
        uses = {u["network"]: u["weight"] for u in row["networks"] or ()}
        if row["task"] in found:
            uses = {u.network: u.weight for u in found[row["task"]].networks} | uses
        found[row["task"]] = Task(
            row["name"], row["operator"], row["format"], row["workload"], tuple(row["extents"]), row["flops"], row["bytes"],
            tuple(NetworkUse(n, w) for n, w in uses.items()),
        )  # fmt: skip
    return list(found.values())


def programs_table(programs: Iterable[Program]) -> pa.Table:
    rows = [(p.id, p.task, p.schedule) for p in programs]
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, PROGRAMS, strict=True)], schema=PROGRAMS)


def measurements_table(measurements: Iterable[Measurement]) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "record": m.id, "program": m.program, "task": m.task, "platform": m.platform, "costs_s": list(m.costs_s),
                "latency_s": m.latency_s, "error": m.error, "detail": m.detail, "measured_at": m.measured_at, "source": m.source,
            }
            for m in measurements
        ],
        MEASUREMENTS,
    )  # fmt: skip
