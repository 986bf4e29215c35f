"""Writing one table's part files: row groups as they come, a new file when one is full."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tcl.programs.schema import TABLES

ROWS_A_PART = 500_000
ROWS_A_GROUP = 32_768
"""Rows (or 32 MB) that are buffered before a row group is written: it bounds a writer's memory."""
BYTES_A_GROUP = 32 << 20
COMPRESSION = {"compression": "zstd", "compression_level": 3}


class PartWriter:
    """Appends tables to part files of one table. Nothing it writes counts before a manifest names it."""

    def __init__(self, folder: Path, table: str) -> None:
        self.folder, self.table = folder, table
        self.parts: list[dict[str, Any]] = []  # finished: {"file", "rows"}
        self._buffer: list[pa.Table] = []
        self._rows = 0  # in the open file
        self._writer: pq.ParquetWriter | None = None
        self._path = Path()

    def append(self, table: pa.Table) -> bool:
        """Add rows; returns whether a part file was finished."""
        if not table.num_rows:
            return False
        self._buffer.append(table)
        if sum(t.num_rows for t in self._buffer) >= ROWS_A_GROUP or sum(t.nbytes for t in self._buffer) >= BYTES_A_GROUP:
            self._write_group()
        if self._rows >= ROWS_A_PART:
            self.close()
            return True
        return False

    def close(self) -> bool:
        """Finish the open part file; returns whether there was one."""
        self._write_group()
        if self._writer is None:
            return False
        self._writer.close()
        self._writer = None
        final = self._path.with_name(self._path.name.lstrip("."))
        self._path.replace(final)
        self.parts.append({"file": f"{self.table}.parquet/{final.name}", "rows": self._rows})
        self._rows = 0
        return True

    def discard(self) -> None:
        """Remove everything written."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None
            self._path.unlink(missing_ok=True)
        for part in self.parts:
            (self.folder / part["file"]).unlink(missing_ok=True)
        self.parts, self._buffer, self._rows = [], [], 0

    def _write_group(self) -> None:
        if not self._buffer:
            return
        table = pa.concat_tables(self._buffer).unify_dictionaries()
        self._buffer = []
        if self._writer is None:
            home = self.folder / f"{self.table}.parquet"
            home.mkdir(exist_ok=True)
            self._path = home / f".part-{time.time_ns():x}-{secrets.token_hex(3)}.parquet"
            words = [f.name for f in TABLES[self.table] if pa.types.is_dictionary(f.type)]
            self._writer = pq.ParquetWriter(self._path, TABLES[self.table], use_dictionary=words, **COMPRESSION)
        self._writer.write_table(table, row_group_size=len(table))
        self._rows += len(table)
