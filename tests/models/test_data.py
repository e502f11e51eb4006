"""Histories are read as they are written, and refused where they cannot be."""

import gzip
import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet
import pytest

from beamsieve.errors import InputError
from beamsieve.models.data import Histories, HistoryColumns, Item, read_histories


def rows(histories: Histories) -> list[tuple[object, list[Item], object]]:
    return [
        (histories.user(n), histories.history(n), histories.target(n))
        for n in range(len(histories))
    ]


WANTED = [("u1", ["a", "b"], "c"), ("u1", [], "d"), ("u2", ["e"], None)]


def test_jsonl_csv_and_parquet_say_the_same(tmp_path):
    records = [{"user": u, "history": h, "target": t} for u, h, t in WANTED]
    jsonl = tmp_path / "h.jsonl"
    jsonl.write_text("".join(json.dumps(record) + "\n" for record in records) + "\n")
    csv = tmp_path / "h.csv"
    csv.write_text('user,history,target\nu1,"[""a"", ""b""]",c\nu1,[],d\nu2,[\'e\'],\n')
    parquet = tmp_path / "h.parquet"
    pyarrow.parquet.write_table(pa.Table.from_pylist(records), parquet)
    zipped = tmp_path / "h.csv.gz"
    zipped.write_bytes(gzip.compress(csv.read_bytes()))
    for path in (jsonl, csv, parquet, zipped):
        assert rows(read_histories(path)) == WANTED, path.name


def test_a_csv_file_without_the_column_ends_no_interpreter(tmp_path):
    # More than one block of Arrow's reader, whose threads outlive it: one run in twenty failed.
    path = tmp_path / "h.csv"
    path.write_text("who,what\n" + "u,some items\n" * 200_000)
    code = (
        "import sys; from beamsieve.models.data import read_histories; read_histories(sys.argv[1])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "no column 'history'" in done.stderr
    assert "terminate" not in done.stderr


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a name is text in Unicode")
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_file_s_name_may_be_any_bytes(tmp_path, ending):
    path = tmp_path / f"h.{ending}"
    if ending == "csv":
        path.write_text("history\n\"['a', 'b']\"\n")
    else:
        pyarrow.parquet.write_table(pa.table({"history": [["a", "b"]]}), path)
    odd = path.rename(tmp_path / os.fsdecode(b"caf\xe9." + ending.encode()))
    assert rows(read_histories(odd)) == [(None, ["a", "b"], None)]


def test_a_header_in_quotes_and_behind_a_mark_of_utf_8(tmp_path):
    path = tmp_path / "h.csv"
    path.write_bytes('\ufeff"history","a\nb"\n0042,1\n'.encode())
    assert rows(read_histories(path)) == [(None, ["0042"], None)]


def test_minionerec_columns_and_python_literals(tmp_path):
    path = tmp_path / "valid.csv"
    path.write_text(
        "user_id,history_item_title,item_title,history_item_id,item_id\n"
        'A1,"[\'Tape, 3/4 in\', ""Dad\'s glue""]","Nail\nand hammer","[3112, 7]",114\n'
    )
    histories = read_histories(path)
    assert rows(histories) == [("A1", [3112, 7], "114")]
    titles = read_histories(path, HistoryColumns(history="history_item_title", target="item_title"))
    assert rows(titles) == [("A1", ["Tape, 3/4 in", "Dad's glue"], "Nail\nand hammer")]


def test_ids_in_text_stay_text(tmp_path):
    path = tmp_path / "h.csv"
    path.write_text("history,target\n0042 7,0042\n,8\n")
    assert rows(read_histories(path)) == [(None, ["0042", "7"], "0042"), (None, [], "8")]


def test_rows_of_numbers_and_rows_of_text_are_all_text(tmp_path):
    path = tmp_path / "h.csv"
    path.write_text('history\n"[1, 2]"\n"[""x""]"\n')
    assert [row[1] for row in rows(read_histories(path))] == [["1", "2"], ["x"]]


def test_all_histories_empty(tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text('{"history": []}\n{"history": null}\n')
    assert [row[1] for row in rows(read_histories(path))] == [[], []]


def test_a_parquet_of_sliced_and_dictionary_lists(tmp_path):
    path = tmp_path / "h.parquet"
    items = pa.array(["a", "b", "a"]).dictionary_encode()
    lists = pa.ListArray.from_arrays(pa.array([0, 2, 3]), items)
    pyarrow.parquet.write_table(pa.table({"history": lists}), path)
    assert [row[1] for row in rows(read_histories(path))] == [["a", "b"], ["a"]]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("h.csv", b"", "is empty"),
        ("h.jsonl", b"\n \n", "is empty"),
        ("h.csv", b"history,target\n", "holds no histories"),
        ("h.csv", b"user,items\n1,2\n", "no column 'history'.*'user', 'items'"),
        ("h.csv", b"history,history\n1,2\n", "two columns called 'history'"),
        ("h.csv", b"\xff\xfe\x00\n1\n", "cannot be read"),
        ("h.csv", b'history\n"[1, 2"\n', r"row 1: '\[1, 2' is no list"),
        ("h.csv", b'history\n[1]\n"[1] + [2]"\n', "row 2: .* is no list"),
        ("h.csv", b'history,user\n1 2,a\n"3,b\n4,c\n', "row 2: a quote is opened|Expected 2 col"),
        ("h.csv", b'history,note\n1 2,x\n3,"y\n4,z\n', "row 2: a quote is opened and never"),
        ("h.csv.gz", b"history\n1\n", "cannot be read"),
        ("h.parquet", b"PAR1 not really", "cannot be read as parquet"),
        ("h.jsonl", b'{"history": [1]}\n{"history"\n', "line 2 is no JSON"),
        ("h.jsonl", b"[1, 2]\n", "line 1 is no JSON object"),
        ("h.jsonl", b'{"history": [1, "a"]}\n', "not all of one kind"),
        ("h.jsonl", b'{"history": [[1]]}\n', "must be integers or strings"),
        ("h.jsonl", b'{"history": [1.5]}\n', "must be integers or strings"),
        ("h.jsonl", b'{"history": 3}\n', "not lists of items"),
        ("h.jsonl", b'{"history": [1]}\n{"history": [2, null]}\n', "row 2: an item .* is null"),
        ("h.jsonl", b'{"history": [1]}\xff\n', "line 1 is no JSON|cannot be read"),
        ("h.jsonl", b"[" * 100_000, "line 1 is no JSON"),
        ("h.jsonl", b'{"history": ["\\ud800"]}\n', "surrogates not allowed"),
        ("h.csv", b'history\n"[' + b"[" * 20_000 + b'"\n', r"row 1: '\[.*no list of items"),
        ("h.csv", b'history\n"[1, null]"\n', "row 1: an item .* is null"),
        ("h.csv", b'history\n"[null]"\n', "row 1: an item .* is null"),
        ("h.csv", b'history\n[1]\n"[""a"", null, 5]"\n', "row 2: .* is no list of items"),
        ("h.xlsx", b"history", "no known kind"),
    ],
)
def test_unreadable_files_are_refused(tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=said) as raised:
        read_histories(path)
    assert name in str(raised.value)


def test_an_absent_file_and_an_absent_named_column(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        read_histories(tmp_path / "none.csv")
    path = tmp_path / "h.csv"
    path.write_text("history\n1\n")
    with pytest.raises(InputError, match="no column 'next'"):
        read_histories(path, HistoryColumns(target="next"))


def test_lists_need_one_target_each_and_one_kind_of_id():
    with pytest.raises(InputError, match="1 targets for 2 histories"):
        Histories.from_lists([[1], [2]], targets=[3])
    with pytest.raises(InputError, match="not all 64-bit integers or all strings"):
        Histories.from_lists([[1, "a"]])
