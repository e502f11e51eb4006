"""The conformance suite on the kernels as Triton's interpreter runs them, on small shapes."""

import os
import subprocess
import sys

import pytest

SMALL = "not 65-33 and not 5-33 and not 1000 and not widths_may and not [all"
"""Without what the interpreter takes longest for, and a normalizer that is tested beside."""


@pytest.mark.parametrize(
    ("modules", "keyword"),
    [
        (["test_one_step.py"], "not float16 and not eligible"),
        (["test_beams.py", "test_candidates.py", "test_prefix.py"], SMALL),
        (["test_awkward_numbers.py"], "(accident_in and not float16) or few_living"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_conformance(modules, keyword):
    code = (
        "import sys; from beamsieve_conformance.runner import run; "
        f"sys.exit(run('triton:cpu', quick=True, tests={modules!r}, keyword={keyword!r}))"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stdout[-4000:] + outcome.stderr[-2000:]
    assert "backend: triton" in outcome.stdout
