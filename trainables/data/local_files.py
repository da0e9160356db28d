"""Reading sentence pairs from files as people have them: CSV, TSV, JSON lines, Parquet.

Nothing is guessed about types: a text "NA" is that text. What cannot be read right is reported with its line.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from trainables.data.rows import Columns, Row, RowChecks, has_decimal_comma, make_row, parse_number
from trainables.errors import InputError

_DELIMITERS: Final = (",", ";", "\t", "|")
_LONGEST_FIELD: Final = 2**31 - 1
"""Characters of a CSV field. Python's own limit, 131,072, is shorter than some documents."""
_FORMATS: Final = "a .csv, .tsv, .txt, .jsonl, .json or .parquet file"
Rows = tuple[list[Row], tuple[str, ...]]


def read_file(
    path: Path,
    columns: Columns,
    label_range: tuple[float, float],
    *,
    header: Sequence[str] | None = None,
    drop_bad: bool = False,
) -> Rows:
    """All rows of a file, each checked, and notes on what was read in a special way.

    Args:
        path: By its ending CSV, TSV, JSON lines (or one JSON array) or Parquet.
        columns: The names of the three columns in this file.
        label_range: Lowest and highest label.
        header: Column names of a CSV that has no header line.
        drop_bad: Leave out rows whose text or label is wrong, and say in a note how many.

    Raises:
        InputError: file and line, field, value, what is allowed; the first bad rows and their count where there are
            more than one.
    """
    ending = path.suffix.lower()
    checks = RowChecks(drop=drop_bad)
    notes: list[str] = []
    if ending in (".csv", ".tsv", ".txt"):
        rows = _read_table(path, columns, label_range, header=header, checks=checks, notes=notes)
    elif ending in (".jsonl", ".json", ".ndjson"):
        rows = _read_json(path, columns, label_range, checks)
    elif ending in (".parquet", ".pq"):
        rows = _read_parquet(path, columns, label_range, checks)
    else:
        raise InputError(where=str(path), field="data", value=ending, allowed=f"expected {_FORMATS}")
    left_out = checks.finish(str(path), kept=len(rows))
    return rows, (*notes, *([left_out] if left_out else []))


def _text(path: Path) -> str:
    content = path.read_bytes()
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        raise InputError(
            where=f"{path}:{line}",
            field="encoding",
            value=content[error.start : error.start + 4],
            allowed="expected UTF-8 (or UTF-16 with a byte-order mark)",
        ) from None


def _lines(text: str) -> list[str]:
    # Not str.splitlines(): it also splits at characters that belong inside sentences, such as U+2028.
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


# -- CSV and TSV -----------------------------------------------------------------------------------------------------


def _unquoted(field: str) -> str:
    """A TSV field without the quotes around it; a stray quote stays what it is, a character."""
    if len(field) >= 2 and field[0] == field[-1] == '"' and '"' not in field[1:-1].replace('""', ""):
        return field[1:-1].replace('""', '"')
    return field


def _records(path: Path, lines: Sequence[str], delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(first line, fields) of each record that is not blank."""
    if delimiter == "\t":
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, [_unquoted(field) for field in line.split("\t")]
        return
    reader = csv.reader((line + "\n" for line in lines), delimiter=delimiter, strict=True)
    start = 1
    usual = csv.field_size_limit()
    while True:
        try:
            csv.field_size_limit(_LONGEST_FIELD)  # of the whole process: only while a record is read
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise InputError(
                where=f"{path}:{start}",
                field="quotes",
                value=lines[start - 1],
                allowed=f'a quoted field must end with a quote, and quotes inside it are doubled ("") ({error})',
            ) from None
        finally:
            csv.field_size_limit(usual)
        # Text lines have lost their last newline in `lines`, the reader has added one.
        if any(field.strip() for field in fields) or len(fields) > 1:
            yield start, fields
        start = reader.line_num + 1


def _delimiter(path: Path, first: str, wanted: Sequence[str]) -> str:
    """The delimiter under which the header has the wanted columns."""
    best = ","
    for delimiter in _DELIMITERS:
        names = [name.strip().strip('"') for name in first.split(delimiter)]
        if all(name in names for name in wanted):
            return delimiter
        if first.count(delimiter) > first.count(best):
            best = delimiter
    return best


def _positions(path: Path, names: Sequence[str], columns: Columns, line: int) -> tuple[int, int, int]:
    found = []
    for ours, name in zip(("sentence1", "sentence2", "label"), columns.names, strict=True):
        times = names.count(name)
        if times != 1:
            wrong = "no such column" if times == 0 else "two columns have this name"
            raise InputError(
                where=f"{path}:{line}",
                field=f"data.columns.{ours}",
                value=name,
                allowed=f"{wrong}; the file has {', '.join(names)}",
            )
        found.append(names.index(name))
    return found[0], found[1], found[2]


def _swallowed(fields: Sequence[str], delimiter: str, width: int) -> bool:
    """True if a quoted field holds what looks like whole rows: an opening quote that was never meant as one."""
    return any(
        line.count(delimiter) >= width - 1 for field in fields if "\n" in field for line in field.split("\n")[1:]
    )


def _read_table(
    path: Path,
    columns: Columns,
    label_range: tuple[float, float],
    *,
    header: Sequence[str] | None,
    checks: RowChecks,
    notes: list[str],
) -> list[Row]:
    lines = _lines(_text(path))
    first = next((line for line in lines if line.strip()), "")
    delimiter = _delimiter(path, first, columns.names) if header is None else ","
    names = list(header) if header is not None else None
    positions = _positions(path, names, columns, 1) if names is not None else None
    rows: list[Row] = []
    written: tuple[int, bool] | None = None  # line and style of the first label that shows its decimal mark
    for line, fields in _records(path, lines, delimiter):
        if names is None or positions is None:
            names = [name.strip() for name in fields]
            positions = _positions(path, names, columns, line)
            continue
        if header is None and [field.strip() for field in fields] == names:
            notes.append(f"{path.name}:{line}: the header is repeated; not read as a row")
            continue
        swallowed = _swallowed(fields, delimiter, len(names))
        if len(fields) != len(names) or swallowed:
            wrong = InputError(
                where=f"{path}:{line}",
                field="columns",
                value=delimiter.join(fields),
                allowed=f"expected {len(names)} fields ({', '.join(names)}), found {len(fields)};"
                f" a field that holds {delimiter!r}, a quote or a line break must stand in quotes",
            )
            if swallowed:  # more than this row is lost
                raise wrong
            checks.bad.append((line, wrong))
            continue
        values = tuple(fields[position] for position in positions)
        if parse_number(values[2]) is not None and any(mark in values[2] for mark in ".,"):
            style = has_decimal_comma(values[2])
            if written is not None and written[1] != style:
                raise InputError(
                    where=f"{path}:{line}",
                    field=columns.label,
                    value=values[2],
                    allowed=f"decimal points and decimal commas are mixed; line {written[0]} has the other",
                )
            written = written or (line, style)
        with checks.row(line):
            three = (values[0], values[1], values[2])
            rows.append(make_row(three, where=str(path), line=line, columns=columns, label_range=label_range))
    return rows


# -- JSON lines and Parquet ------------------------------------------------------------------------------------------


def _json_objects(path: Path, checks: RowChecks) -> Iterator[tuple[int, Any]]:
    text = _text(path)
    if text.lstrip().startswith("["):
        try:
            yield from enumerate(json.loads(text), start=1)
        except json.JSONDecodeError as error:
            raise InputError(
                where=f"{path}:{error.lineno}", field="JSON", value=error.msg, allowed="expected JSON"
            ) from None
        return
    for number, line in enumerate(io.StringIO(text.replace("\r\n", "\n"), newline="\n"), start=1):
        if not line.strip():
            continue
        with checks.row(number):
            yield number, _json_object(line, f"{path}:{number}")


def _json_object(line: str, place: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        allowed = f"expected one JSON object ({error.msg})"
        raise InputError(where=place, field="JSON", value=line.strip(), allowed=allowed) from None


def _read_json(path: Path, columns: Columns, label_range: tuple[float, float], checks: RowChecks) -> list[Row]:
    rows = []
    for line, item in _json_objects(path, checks):
        with checks.row(line):
            rows.append(_json_row(item, path, line, columns, label_range))
    return rows


def _json_row(item: Any, path: Path, line: int, columns: Columns, label_range: tuple[float, float]) -> Row:
    if not isinstance(item, dict):
        raise InputError(where=f"{path}:{line}", field="JSON", value=item, allowed="expected one JSON object per line")
    missing = [name for name in columns.names if name not in item]
    if missing:
        raise InputError(
            where=f"{path}:{line}",
            field="data.columns",
            value=missing[0],
            allowed=f"no such field; the line has {', '.join(map(str, item))}",
        )
    values = (item[columns.sentence1], item[columns.sentence2], item[columns.label])
    return make_row(values, where=str(path), line=line, columns=columns, label_range=label_range)


def _read_parquet(path: Path, columns: Columns, label_range: tuple[float, float], checks: RowChecks) -> list[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        names = pq.read_schema(path).names
        _positions(path, names, columns, 1)
        table = pq.read_table(path, columns=list(columns.names))
    except pa.ArrowInvalid as error:
        why = str(error).splitlines()[0]
        raise InputError(where=str(path), field="data", value=path.name, allowed=f"must be Parquet ({why})") from None
    parts = [table.column(name).to_pylist() for name in columns.names]
    rows = []
    for number, (first, second, label) in enumerate(zip(*parts, strict=True), start=1):
        with checks.row(number):
            three = (first, second, label)
            rows.append(make_row(three, where=str(path), line=number, columns=columns, label_range=label_range))
    return rows
