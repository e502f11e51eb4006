"""The command as a process: exit codes, streams, signals, and how fast it starts."""

from __future__ import annotations

import json
import os
import pty
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

BEAMSIEVE = Path(sys.executable).with_name("beamsieve")
HEAVY = ("torch", "triton", "cupy", "pandas", "sklearn", "pytest", "hypothesis")


def python(code: str) -> list[str]:
    """A Python that first runs ``code`` and then the command line on its arguments."""
    return [
        sys.executable,
        "-c",
        textwrap.dedent(code) + "\nfrom beamsieve.cli import main; main()",
    ]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_installed_command_builds_and_prints_only_json(catalog, tmp_path):
    words = [BEAMSIEVE, "build", catalog, "-o", tmp_path / "x.safetensors", "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["items"] == 500
    assert done.stderr == ""


def test_an_error_is_one_line_and_an_exit_code(tmp_path):
    (tmp_path / "bad.csv").write_text("item,price\na,1\n")
    done = subprocess.run(
        [BEAMSIEVE, "inspect", tmp_path / "bad.csv"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_python_can_run_it_where_it_is_not_on_the_path(catalog):
    words = [sys.executable, "-m", "beamsieve", "inspect", catalog, "--json"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["items"] == 500


@pytest.mark.parametrize("words", [["--help"], ["build", "--help"], ["backends", "--no-check"]])
def test_what_needs_no_heavy_library_imports_none(words):
    report = f"""
        import atexit, sys
        atexit.register(lambda: print([m for m in {HEAVY} if m in sys.modules], file=sys.stderr))
    """
    done = subprocess.run([*python(report), *words], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["[]"]


@pytest.mark.parametrize(
    ("how", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"]
)
@pytest.mark.parametrize("stage", ["while it reads", "while it writes"])
def test_an_interrupted_build_leaves_no_half_file(catalog, tmp_path, how, code, stage):
    # The moment is made to last: before the first row is read, or before the finished file is
    # given its name.
    place = {"while it reads": "Catalog.read", "while it writes": "Path.replace"}[stage]
    paused = f"""
        import sys, time
        from pathlib import Path
        from beamsieve.catalog import Catalog
        def pause(*arguments, **options):
            print("here", file=sys.stderr, flush=True)
            time.sleep(60)
        {place} = pause
    """
    output = tmp_path / "x.safetensors"
    words = [*python(paused), "build", str(catalog), "-o", str(output)]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "here\n"
        if stage == "while it writes":
            assert len(names(tmp_path)) == 2
        process.send_signal(how)
        complaint = process.stderr.read()
        assert process.wait(30) == code

    assert names(tmp_path) == ["catalog.csv"]
    assert "Traceback" not in complaint
    if how == signal.SIGINT:
        assert complaint.startswith("beamsieve: interrupted")


def test_a_reader_that_has_seen_enough_is_no_error(catalog):
    # More than a pipe holds, read by nobody.
    code = """
        import beamsieve.cli.backends as backends
        backends.print_json = lambda value: print("x" * 10_000_000)
    """
    words = [*python(code), "backends", "--no-check", "--json"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


@pytest.mark.parametrize("more", [[], ["--json"]])
@pytest.mark.parametrize("how", ["| true", ">&-"], ids=["no reader", "closed"])
def test_output_that_nobody_reads_ends_with_one_code(catalog, more, how):
    words = shlex.join(map(str, [BEAMSIEVE, "inspect", catalog, *more]))
    done = subprocess.run(
        ["bash", "-c", f"{words} {how}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (141, "", "")


@pytest.mark.parametrize("closed", ["2>&-", ">&- 2>&-"])
def test_a_closed_stderr_changes_no_exit_code(tmp_path, closed):
    words = shlex.join(map(str, [BEAMSIEVE, "inspect", tmp_path / "none.csv"]))
    done = subprocess.run(["bash", "-c", f"{words} {closed}"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (2, b"")


def test_progress_is_drawn_on_a_terminal_alone(catalog, tmp_path):
    words = [str(BEAMSIEVE), "build", str(catalog), "-o", str(tmp_path / "x.safetensors")]
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=end, env=environment)
    os.close(end)
    drawn = b""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # how Linux says that the other end was closed
            break
        if not piece:
            break
        drawn += piece
    os.close(terminal)
    assert process.stdout is not None
    with process.stdout:
        assert b"500 items" in process.stdout.read()
    assert process.wait(30) == 0
    assert b"reading" in drawn
    assert b"writing the index" in drawn


def test_a_full_disk_is_said_in_one_line(catalog, tmp_path):
    code = """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))
    """
    words = [*python(code), "build", catalog, "-o", tmp_path / "x.safetensors"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert "x.safetensors" in done.stderr
    assert names(tmp_path) == ["catalog.csv"]


@pytest.mark.parametrize("words", ["--help", "--version", "build --help"])
def test_help_that_nobody_reads_ends_as_all_output_does(words):
    script = f"({shlex.quote(str(BEAMSIEVE))} {words}; echo $? >&2) | true"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines() == ["141"]
