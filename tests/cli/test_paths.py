"""Outputs never replace what a command reads, nor a link, a pipe or each other."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest

from beamsieve.cli.paths import named_at_the_end, text_aside

FILES = {
    "c.csv": "item,sid\na,0 1\nb,1 0\n",
    "attributes.json": "[]",
    "h.jsonl": '{"history": ["a"]}\n',
    "h.csv": "history\na\n",
    "q.jsonl": "null\n",
    "index": "an index",
    "m": "a model",
    "m2.state": "an index",
    "parts/one.parquet": "a part",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files of every kind that a command reads, in the working folder."""
    (tmp_path / "parts").mkdir()
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    (tmp_path / "link").symlink_to("c.csv")
    (tmp_path / "link.jsonl").symlink_to("h.jsonl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "build c.csv -o c.csv",
        "build c.csv -o ./parts/../c.csv",
        "build c.csv -o link",
        "build link --format csv -o c.csv",
        "build parts -o parts/one.parquet",
        "build c.csv -o attributes.json --attributes attributes.json",
        "build c.csv -o x --on-error skip --rejects c.csv",
        "build c.csv -o x --on-error skip --rejects x",
        "build c.csv -o x --on-error skip --rejects parts/../x",
        "train h.jsonl index -o h.jsonl",
        "train h.jsonl index -o link.jsonl",
        "train h.jsonl index -o index",
        "train h.jsonl m2.state -o m2",
        "recommend m index h.jsonl -o h.jsonl",
        "recommend m index h.jsonl -o index",
        "recommend m index h.jsonl -o m",
        "recommend m index h.jsonl --requests q.jsonl -o q.jsonl",
    ],
)
def test_an_output_that_is_an_input_or_another_output_is_refused(run, folder, words):
    outcome = run(*words.split())
    assert outcome.code == 2
    assert "as well; give another file" in outcome.complaint
    assert {name: (folder / name).read_text() for name in FILES} == FILES
    assert not (folder / "x").exists()


@pytest.mark.parametrize("words", ["build c.csv -o pipe", "train h.jsonl index -o pipe"])
def test_a_binary_output_that_is_a_pipe_is_refused(run, folder, words):
    os.mkfifo("pipe")
    outcome = run(*words.split())
    assert outcome.code == 2
    assert "pipe or a device" in outcome.complaint
    assert (folder / "pipe").is_fifo()


def test_a_pipe_is_written_to_as_it_is(run, folder):
    os.mkfifo("pipe")
    (folder / "c.csv").write_text("item,sid\na,0 1\nb,x\n")
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(Path("pipe").read_text()), daemon=True)
    reader.start()
    outcome = run("build", "c.csv", "-o", "x", "--on-error", "skip", "--rejects", "pipe")
    reader.join(30)
    assert outcome.code == 0
    assert json.loads(read[0])["data_row"] == 2
    assert (folder / "pipe").is_fifo()


def test_a_link_stays_and_its_target_is_written(run, folder):
    for name in ("index", "rejects"):
        (folder / f"{name}-link").symlink_to(folder / "parts" / name)
    words = "build c.csv -o index-link --on-error skip --rejects rejects-link"
    assert run(*words.split()).code == 0
    assert (folder / "index-link").is_symlink()
    assert (folder / "rejects-link").is_symlink()
    assert run("inspect", "parts/index").code == 0
    assert (folder / "parts" / "rejects").read_text() == ""
    assert sorted(os.listdir("parts")) == ["index", "one.parquet", "rejects"]


def test_a_folder_that_takes_nothing_is_said_before_the_work(run, folder, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != folder / "parts")
    outcome = run("build", "c.csv", "-o", "parts/x")
    assert (outcome.code, "nothing can be written" in outcome.complaint) == (2, True)
    (folder / "out-link").symlink_to(folder / "parts" / "x")
    assert run("build", "c.csv", "-o", "out-link").code == 2
    assert os.listdir("parts") == ["one.parquet"]


def test_two_writers_of_one_file_do_not_meet(folder):
    with text_aside(folder / "out") as one, text_aside(folder / "out") as other:
        one.write("one")
        other.write("other")
    assert (folder / "out").read_text() == "one"
    assert not [name for name in os.listdir(folder) if name.endswith(".part")]


def test_an_error_keeps_the_old_file_unless_asked(folder):
    for keep, content in ((False, "old"), (True, "new")):
        (folder / "out").write_text("old")
        with pytest.raises(ValueError, match="stop"):
            fail_while_writing(folder / "out", keep)
        assert (folder / "out").read_text() == content


def fail_while_writing(path: Path, keep: bool) -> None:
    with named_at_the_end(path, keep_on_error=keep) as aside:
        aside.write_text("new")
        raise ValueError("stop")
