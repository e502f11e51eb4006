"""The documents hold: their Python runs, their commands exist, their links lead somewhere."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from beamsieve.catalog import Catalog
from beamsieve.index import Index

ROOT = Path(__file__).parents[2]
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


# Pages whose commands run as they stand, one after the other, but for these, and where those run.
RUN_IN_ORDER = ("README.md", "docs/cli.md", "docs/operate.md", "docs/targeting.md")
RUN_ELSEWHERE = {
    "demo": "tests/demo, by its parts: two minutes",
    "demo --quick --json": "tests/demo",
    "conformance torch:cpu --quick": "dev.py test, and tox's wheel",
    "conformance reference --quick -k prefix --json": "tests/cli/test_backend_commands.py",
    "bench matrix --quick --workloads items.safetensors --output run.json": ".ci/bench",
    "bench stage --items 20000 --beams 16 --rounds 3": "tests/bench/test_stage.py",
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
    rules = {"country": {"accepts": ["US"]}}
    ruled = [{"item": "a", "sid": [0, 0], "rules": rules}, {"item": "b", "sid": [0, 1]}]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, ruled)))
    (tmp_path / "attributes.json").write_text('[{"name": "country", "values": ["US", "CA"]}]')
    run = json.loads((ROOT / "bench/results/matrix/cpu-2-cores.json").read_text("utf-8"))
    run["rows"] = [row for row in run["rows"] if row["workload"] == "real:Beauty"]
    (tmp_path / "run.json").write_text(json.dumps(run))
    (tmp_path / "histories.jsonl").write_text("\n".join(map(json.dumps, histories)))
    pyarrow.parquet.write_table(pa.Table.from_pylist(histories), tmp_path / "histories.parquet")
    return tmp_path


# Reads a dict of programs; one process for all of them, as most of their time would be imports.
RUN_PROGRAMS = """
import json, sys, traceback
failed = []
for name, text in json.load(sys.stdin).items():
    try:
        exec(compile(text, name, "exec"), {"__name__": "__main__"})
    except BaseException:
        failed.append(name)
        traceback.print_exc()
sys.exit(f"failed: {failed}" if failed else 0)
"""


def test_the_python_of_every_document_runs_from_top_to_bottom(sample):
    programs = {name: "\n".join(blocks(ROOT / name, "python")) for name in NAMES}
    programs = {name: text for name, text in programs.items() if text}
    assert {"README.md", "docs/operate.md", "docs/index.md"} <= programs.keys()
    done = subprocess.run(
        [sys.executable, "-c", RUN_PROGRAMS],
        input=json.dumps(programs),
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


# Reads guides, each with its folder and its commands; one process for all of them, as most of their
# time would be imports.
RUN_ALL = """
import json, os, sys
from beamsieve.cli import app
failed = []
for name, folder, commands in json.load(sys.stdin):
    os.chdir(folder)
    for words in commands:
        try:
            app(words)
        except SystemExit as ended:
            if ended.code:
                failed.append(f"{name}: beamsieve {' '.join(words)} ended with {ended.code}")
                break
sys.exit("\\n".join(failed) or 0)
"""


def test_the_commands_of_every_guide_run_in_order(sample, tmp_path_factory):
    guides = []
    for name in RUN_IN_ORDER:
        words = [w for w in commands(ROOT / name) if shlex.join(w) not in RUN_ELSEWHERE]
        assert words, name
        for each in words:  # 200 epochs of sixty histories show nothing that three do not
            each += ["--epochs", "3"] if each[0] == "train" and "--epochs" not in each else []
        folder = shutil.copytree(sample, tmp_path_factory.mktemp("guide") / "files")
        guides.append((name, str(folder), words))
    done = subprocess.run(
        [sys.executable, "-c", RUN_ALL],
        input=json.dumps(guides),
        env=ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_what_runs_elsewhere_is_still_in_a_guide():
    shown = {shlex.join(words) for name in RUN_IN_ORDER for words in commands(ROOT / name)}
    assert RUN_ELSEWHERE.keys() <= shown


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_every_module_that_a_document_runs_exists_and_has_its_options(path):
    text = path.read_text("utf-8")
    for module, rest in re.findall(r"python -m (beamsieve\w*(?:\.\w+)+)([^`\n#]*)", text):
        found = importlib.util.find_spec(module)
        assert found is not None, f"{path.name}: python -m {module}"
        assert found.origin is not None
        source = Path(found.origin).read_text("utf-8")
        for option in re.findall(r"(?<!\S)--[\w-]+", rest):
            assert f'"{option}"' in source, f"{path.name}: python -m {module} {option}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_blocks_of_data_can_be_read(path):
    for block in blocks(path, "toml"):
        tomllib.loads(block)
    for block in blocks(path, "json"):
        json.loads(block)


@pytest.mark.parametrize("path", DOCUMENTS, ids=NAMES)
def test_links_within_the_repository_lead_somewhere(path):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", path.read_text("utf-8")):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name} links to {target}"
