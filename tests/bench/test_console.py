"""What benchmarks say beside their results."""

import os

import pytest

from beamsieve_bench import console


@pytest.mark.parametrize(
    ("load", "threads", "told"), [(0.4, 2, False), (0.6, 2, True), (1.4, 1, False), (1.6, 1, True)]
)
def test_a_busy_machine_is_told_of_in_a_line(monkeypatch, capsys, load, threads, told):
    monkeypatch.setattr(console, "thread_count", lambda threads: 2)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    console.warn_of_load(threads, "Wait.")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == told
    assert all(f"load is {load} on 2 processors" in line and "Wait." in line for line in lines)
