"""How a test ends is for the suite to say, never for the backend that it tests.

Under pytest any code may skip the test that calls it, expect its failure, or end the session. Each
of these would look like success: a backend that skips whatever reaches it has failed nothing. So
this plug-in counts what a backend ends as failed. (A process that it ends: see ``runner``.)
"""

from __future__ import annotations

import unittest
from collections.abc import Generator
from pathlib import Path
from traceback import walk_tb

import pytest

from beamsieve_conformance.failures import HERE, PYTEST

WAYS_OUT = (
    pytest.skip.Exception,
    pytest.xfail.Exception,
    pytest.exit.Exception,
    unittest.SkipTest,
)
"""What ends a test without a failure of it."""


class EndedByBackendError(Exception):
    """A backend skipped the test that called it, or ended the session."""


def of_backend(error: BaseException) -> EndedByBackendError | None:
    """The failure that one of :data:`WAYS_OUT` is, where it was not the suite that took it.

    What raised it is the last place outside of pytest: a test, or what tests share.
    """
    places = [Path(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__)]
    own = [place for place in places if not place.is_relative_to(PYTEST)]
    if own and own[-1].is_relative_to(HERE):
        return None
    failure = EndedByBackendError(
        f"it raised {type(error).__name__} ({error}) to end the test; what a backend cannot do is "
        f"left out of its capabilities, or listed among its deviations"
    )
    return failure.with_traceback(error.__traceback__)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """A test that the backend skipped or ended has failed."""
    try:
        yield
    except WAYS_OUT as error:
        failure = of_backend(error)
        if failure is None:
            raise
        raise failure from None
