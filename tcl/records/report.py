"""An import's summary in sentences for people."""

from __future__ import annotations

from tcl.progress import format_seconds
from tcl.records.importer import Summary


def describe_import(summary: Summary) -> list[str]:
    """What happened, most important first; the numbers of the first line add up."""
    refused = sum(summary.refused.values())
    lines = [
        f"{summary.lines:,} records in {summary.files:,} files: {summary.imported:,} imported, {summary.duplicates:,} duplicates, "
        f"{refused:,} refused ({format_seconds(summary.seconds)})."
    ]
    if summary.duplicates:
        lines.append(
            f"Of the duplicates, {summary.remeasured:,} are further measurements of a known schedule and were kept beside the first; "
            f"{summary.repeated:,} are the very same record again."
        )
    failed = sum(summary.failed.values())
    if failed:
        kinds = ", ".join(f"{kind} {n:,}" for kind, n in summary.failed.most_common())
        lines.append(f"{failed:,} of them tell of a failed measurement: {kinds}.")
        if failed == summary.imported + summary.duplicates:
            lines.append("Every measurement failed: there is no latency to learn from.")
    for platform, counts in summary.by_platform.items():
        lines.append(f"Platform {platform}: {counts['lines']:,} records.")
    for reason, n in summary.refused.most_common():
        places = [f"{e['file']}:{e['line']}" for e in summary.refused_lines if e["reason"] == reason]
        lines.append(f"Refused {n:,}: {reason} ({', '.join(places[:3])}{', …' if n > 3 else ''}).")
    shown = list(summary.skipped.items())
    for file, reason in shown[:20]:
        lines.append(f"Skipped {file}: {reason}.")
    if len(shown) > 20:
        lines.append(f"Skipped {len(shown) - 20:,} more files.")
    return lines
