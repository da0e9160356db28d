"""Files as people have them: read right, or reported by line."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from trainables.data.local_files import read_file
from trainables.data.rows import Columns, Row
from trainables.errors import InputError

RANGE = (0.0, 5.0)


def read(folder: Path, content: str | bytes, name: str = "pairs.csv", columns: Columns | None = None) -> list[Row]:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_file(path, columns or Columns(), RANGE)[0]


def triples(rows: list[Row]) -> list[tuple[str, str, float]]:
    return [(row.sentence1, row.sentence2, row.label) for row in rows]


HEADER = "sentence1,sentence2,label\n"
JSON_1 = '{"sentence1": "a cat", "sentence2": "a dog", "label": 3.5}'
JSON_2 = '{"sentence1": "x", "sentence2": "y", "label": "0"}'
PLAIN = [("a cat", "a dog", 3.5), ("x", "y", 0.0)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("pairs.csv", HEADER + "a cat,a dog,3.5\nx,y,0\n"),
        ("pairs.csv", b"\xef\xbb\xbf" + (HEADER + "a cat,a dog,3.5\nx,y,0\n").encode()),
        ("pairs.csv", (HEADER + "a cat,a dog,3.5\nx,y,0\n").encode("utf-16")),
        ("pairs.csv", (HEADER + "a cat,a dog,3.5\nx,y,0\n").replace("\n", "\r\n")),
        ("pairs.csv", (HEADER + "a cat,a dog,3.5\nx,y,0").replace("\n", "\r")),
        ("pairs.csv", "\n" + HEADER + "\na cat,a dog,3.5\n   \n\nx,y,0\n\n"),
        ("pairs.csv", HEADER + '"a cat","a dog","3.5"\n"x","y","0"\n'),
        ("pairs.csv", HEADER + '"a cat","a dog","3,5"\nx,y,0\n'),
        ("pairs.csv", HEADER + "a cat,a dog,3.5\n" + HEADER + "x,y,0\n"),
        ("pairs.csv", "sentence1;sentence2;label\na cat;a dog;3,5\nx;y;0\n"),
        ("pairs.csv", "sentence1\tsentence2\tlabel\na cat\ta dog\t3.5\nx\ty\t0\n"),
        ("pairs.tsv", 'sentence1\tsentence2\tlabel\n"a cat"\ta dog\t3.5\nx\ty\t0\n'),
        ("pairs.csv", "id,label,sentence2,sentence1\n1,3.5,a dog,a cat\n2,0,y,x\n"),
        ("pairs.jsonl", JSON_1 + "\n\n" + JSON_2 + "\n"),
        ("pairs.json", "[" + JSON_1 + ",\n" + JSON_2 + "]"),
    ],
)  # fmt: skip
def test_read_right(tmp_path: Path, name: str, content: str | bytes) -> None:
    assert triples(read(tmp_path, content, name)) == PLAIN


def test_parquet(tmp_path: Path) -> None:
    path = tmp_path / "pairs.parquet"
    pq.write_table(pa.table({"sentence1": ["a cat", "x"], "sentence2": ["a dog", "y"], "label": [3.5, 0.0]}), path)
    assert triples(read_file(path, Columns(), RANGE)[0]) == PLAIN


@pytest.mark.parametrize("text", ["null", "NA", "NaN", "None", "N/A", "nan", "0", "true", "-"])
def test_words_that_look_missing_are_texts(tmp_path: Path, text: str) -> None:
    assert triples(read(tmp_path, f"{HEADER}{text},b,1\n")) == [(text, "b", 1.0)]


def test_quotes_inside_fields_are_kept(tmp_path: Path) -> None:
    rows = read(tmp_path, HEADER + 'He said "hi" twice,"He said ""hi"", twice",4\n')
    assert triples(rows) == [('He said "hi" twice', 'He said "hi", twice', 4.0)]


def test_stray_quotes_in_tsv_are_characters(tmp_path: Path) -> None:
    rows = read(tmp_path, 'sentence1\tsentence2\tlabel\n"open\tb"\t1\n5" disk\t"\t2\n', "p.tsv")
    assert triples(rows) == [('"open', 'b"', 1.0), ('5" disk', '"', 2.0)]


def test_line_break_inside_quotes(tmp_path: Path) -> None:
    rows = read(tmp_path, HEADER + '"two\nlines",b,1\nc,d,2\n')
    assert [(row.line, row.sentence1) for row in rows] == [(2, "two\nlines"), (4, "c")]


def test_unusual_line_separators_stay_inside_texts(tmp_path: Path) -> None:
    assert triples(read(tmp_path, HEADER + "a\u2028b,c\x0bd,1\n")) == [("a\u2028b", "c\x0bd", 1.0)]


def test_repeated_header_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "pairs.csv"
    path.write_text(HEADER + "a,b,1\n" + HEADER + "c,d,2\n")
    assert read_file(path, Columns(), RANGE)[1] == ("pairs.csv:3: the header is repeated; not read as a row",)


@pytest.mark.parametrize(
    ("name", "content", "line", "message"),
    [
        ("p.csv", HEADER + "a,b,1\nc,d,high\n", 3, "label: 'high' is not valid; expected a number from 0 to 5"),
        ("p.csv", HEADER + "a,b,1\nc,d,\n", 3, "label: '' is not valid"),
        ("p.csv", HEADER + "a,b,nan\n", 2, "label: 'nan' is not valid"),
        ("p.csv", HEADER + "a,b,inf\n", 2, "label: 'inf' is not valid"),
        ("p.csv", HEADER + "a,b,1_0\n", 2, "label: '1_0' is not valid"),
        ("p.csv", HEADER + "a,b,5.01\n", 2, "label: 5.01 is not valid; expected a number from 0 to 5"),
        ("p.csv", HEADER + "a,b,-1\n", 2, "label: -1.0 is not valid"),
        ("p.csv", HEADER + "\n\n ,b,1\n", 4, "sentence1: ' ' is not valid; an empty text cannot be compared"),
        ("p.csv", HEADER + "a,,1\n", 2, "sentence2: '' is not valid"),
        ("p.csv", HEADER + ",,\n", 2, "is not valid"),
        ("p.csv", HEADER + "a,b,3,5\n", 2, "expected 3 fields (sentence1, sentence2, label), found 4"),
        ("p.csv", HEADER + "a,b\n", 2, "expected 3 fields"),
        ("p.csv", HEADER + 'a,b,1\n"open,b,1\nc,d,2\n', 3, "a quoted field must end with a quote"),
        ("p.csv", HEADER + '"open,b,1\n"x",d,2\n', 2, "a quoted field must end with a quote"),
        ("p.csv", HEADER + 'a,b,1\n"open,b,1\nc,d,2\nlast",b,3\n', 3, "must stand in quotes"),
        ("p.csv", HEADER + 'a,b,"1,5"\nc,d,1.5\n', 3, "decimal points and decimal commas are mixed; line 2"),
        ("p.csv", HEADER.encode() + b"a,b,1\nc\xff,d,2\n", 3, "encoding"),
        ("p.csv", "a,b,label\nx,y,1\n", 1, "data.columns.sentence1: 'sentence1' is not valid; no such column"),
        ("p.csv", "sentence1,sentence2,label,label\nx,y,1,1\n", 1, "two columns have this name"),
        ("p.tsv", "sentence1\tsentence2\tlabel\nx\ty\n", 2, "expected 3 fields"),
        ("p.jsonl", '{"sentence1":"a","sentence2":"b","label":1}\n{"sentence1":\n', 2, "expected one JSON object"),
        ("p.jsonl", '{"sentence1":"a","sentence2":"b","label":NaN}\n', 1, "label: nan is not valid"),
        ("p.jsonl", '{"sentence1":null,"sentence2":"b","label":1}\n', 1, "sentence1: None is not valid; expected text"),
        ("p.jsonl", '{"sentence1":"a","sentence2":"b","label":true}\n', 1, "label: True is not valid"),
        ("p.jsonl", '{"sentence1":"a","label":1}\n', 1, "data.columns: 'sentence2' is not valid; no such field"),
        ("p.jsonl", "[1]\n", 1, "expected one JSON object per line"),
    ],
)
def test_reported_by_line(tmp_path: Path, name: str, content: str | bytes, line: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, content, name)
    shown = str(caught.value)
    assert shown.startswith(f"{tmp_path / name}:{line}: ")
    assert message in shown
    assert "\n" not in shown


def test_unknown_ending(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"'.xlsx' is not valid; expected a .csv"):
        read(tmp_path, "x", "pairs.xlsx")


def test_broken_parquet(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="must be Parquet"):
        read(tmp_path, "not parquet", "pairs.parquet")


def test_every_row_of_a_large_file_is_there(tmp_path: Path) -> None:
    lines = [json.dumps({"sentence1": f"s{i}", "sentence2": "t", "label": i % 6}) for i in range(2000)]
    assert len(read(tmp_path, "\r\n".join(lines), "p.jsonl")) == 2000


def test_all_bad_rows_are_told_in_one_line(tmp_path: Path) -> None:
    content = HEADER + "a,b,1\n" + "".join(f"x,y,{label}\n" for label in ("9", "", "?", "-1")) + ",z,2\na,b\nq,r,7\n"
    with pytest.raises(InputError) as caught:
        read(tmp_path, content)
    told = str(caught.value)
    assert "\n" not in told
    assert (
        "pairs.csv: 7 of 8 rows are bad: line 3: label: 9.0, expected a number from 0 to 5; line 4: label: ''" in told
    )
    assert "line 7: sentence1: '', an empty text cannot be compared; and 2 more (data.bad_rows: drop" in told


def test_a_missing_label_everywhere_is_one_line(tmp_path: Path) -> None:
    line = json.dumps({"sentence1": "a", "sentence2": "b", "label": None}) + "\n"
    with pytest.raises(InputError) as caught:
        read(tmp_path, line * 12_000 + JSON_1 + "\nnot json\n", "pairs.jsonl")
    assert "12001 of 12002 rows are bad: line 1: label: None, expected a number from 0 to 5" in str(caught.value)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("name", "bad"),
    [
        ("pairs.csv", [HEADER + "a cat,a dog,3.5\n", "x,y,9\n", "x,y\n", "x,y,0\n"]),
        ("pairs.jsonl", [JSON_1 + "\n", JSON_1.replace("3.5", "null") + "\n", "{\n", JSON_2 + "\n"]),
    ],
)
def test_bad_rows_are_left_out_and_counted(tmp_path: Path, name: str, bad: list[str]) -> None:
    path = tmp_path / name
    path.write_text("".join(bad))
    rows, notes = read_file(path, Columns(), RANGE, drop_bad=True)
    assert triples(rows) == PLAIN
    first = 3 if name.endswith("csv") else 2
    assert notes == (f"{path}: 2 of 4 rows left out (data.bad_rows: drop), lines {first}, {first + 1}",)


def test_decimal_marks_that_are_mixed_are_refused_even_so(tmp_path: Path) -> None:
    (tmp_path / "pairs.csv").write_text("sentence1;sentence2;label\na;b;3,5\nx;y;1.5\n")
    with pytest.raises(InputError, match="mixed"):
        read_file(tmp_path / "pairs.csv", Columns(), RANGE, drop_bad=True)


def test_a_very_long_sentence(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    long = "word " * 40_000 + "end"
    assert triples(read(tmp_path, HEADER + f'"{long}",b,1\nx,"{long}",2\n')) == [(long, "b", 1.0), ("x", long, 2.0)]
    assert csv.field_size_limit() == before
