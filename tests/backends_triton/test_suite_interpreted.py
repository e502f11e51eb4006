"""The conformance suite on the kernels as Triton's interpreter runs them, on small shapes."""

import pytest

from beamsieve_conformance.runner import SUITE

SMALL = "not 65-33 and not 5-33 and not 1000 and not widths_may and not [all"
"""Without what the interpreter takes longest for, and a normalizer that is tested beside."""
AWKWARD = "accident_in or few_living or no_number or nan_never or (takes_no_other and catalog)"


@pytest.mark.parametrize(
    ("modules", "keyword"),
    [
        (["test_one_step.py"], "not float16 and not eligible and not many_candidates"),
        (["test_beams.py", "test_candidates.py", "test_prefix.py"], SMALL),
        (["test_awkward_numbers.py"], AWKWARD),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_conformance(run_interpreted, modules, keyword):
    suite = ("-v", "-c", SUITE / "pytest.ini", "-p", "beamsieve_conformance.plugin", "--quick")
    tests = [SUITE / module for module in modules]
    said = run_interpreted(*suite, "--backend", "triton:cpu", "-k", keyword, *tests)
    assert "backend: triton" in said
