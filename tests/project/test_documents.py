"""The documents hold: their Python runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from beamsieve.catalog import Catalog
from beamsieve.index import Index

ROOT = Path(__file__).parents[2]
SCRIPTS = Path(sys.executable).parent
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]


def blocks(path: Path, language: str) -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text("utf-8"), re.S | re.M)


def commands(path: Path) -> list[list[str]]:
    """The lines of shell blocks that call beamsieve, as words."""
    lines = [line for block in blocks(path, "sh") for line in block.splitlines()]
    return [
        words[1:]
        for line in lines
        if (words := shlex.split(line, comments=True))[:1] == ["beamsieve"]
    ]


# Run by tests of their own, or by CI itself.
RUN_ELSEWHERE = {
    "demo",
    "demo --quick --json",
    "conformance torch:cpu --quick",
    "bench matrix --quick --workloads items.safetensors --batches 4 --widths 16 --output run.json",
    "bench report run.json report.html",
    "bench compare run.json run.json --against unconstrained",
    "bench stage --items 20000 --beams 16 --rounds 3",
}
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A folder with the files that the documents speak of."""
    sids = np.random.default_rng(0).integers(0, 64, (200, 3))
    items = [f"i{n}" for n in range(len(sids))]
    codes = [" ".join(map(str, sid)) for sid in sids.tolist()]
    table = pa.table({"item": items, "sid": codes, "title": [f"Title {item}" for item in items]})
    pyarrow.csv.write_csv(table, tmp_path / "items.csv")
    pyarrow.parquet.write_table(table, tmp_path / "items.parquet")
    Index.build(Catalog.read(table, codebooks=64)).save(tmp_path / "items.safetensors")
    histories = [
        {"user": n, "history": items[n : n + 3], "target": items[n + 3]} for n in range(60)
    ]
    (tmp_path / "histories.jsonl").write_text("\n".join(map(json.dumps, histories)))
    return tmp_path


WITH_PYTHON = [path for path in DOCUMENTS if blocks(path, "python")]


@pytest.mark.parametrize("path", WITH_PYTHON, ids=lambda path: path.name)
def test_the_python_of_a_document_runs_from_top_to_bottom(path, sample):
    program = sample / "program.py"
    program.write_text("\n".join(blocks(path, "python")), "utf-8")
    done = subprocess.run(
        [sys.executable, program],
        cwd=sample,
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_the_example_of_the_readme_is_about_twenty_lines():
    (example,) = blocks(ROOT / "README.md", "python")
    assert len([line for line in example.splitlines() if line.strip()]) <= 22


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_option_that_a_document_shows_exists(path):
    from typer.main import get_command

    from beamsieve.cli import app

    known = get_command(app).commands  # type: ignore[attr-defined]
    for words in commands(path):
        assert words[0] in known, f"beamsieve {shlex.join(words)}"
        options = {name for option in known[words[0]].params for name in option.opts}
        for word in words[1:]:
            if word.startswith("-") and words[0] != "bench":
                assert word in options | {"--debug", "--help"}, f"beamsieve {shlex.join(words)}"


def test_the_commands_of_the_guide_run_in_order(sample):
    for words in commands(ROOT / "docs" / "cli.md"):
        if shlex.join(words) in RUN_ELSEWHERE:
            continue
        done = subprocess.run(
            [SCRIPTS / "beamsieve", *words],
            cwd=sample,
            env=ONE_THREAD,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"beamsieve {shlex.join(words)}\n{done.stderr}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_within_the_repository_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
