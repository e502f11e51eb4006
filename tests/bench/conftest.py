import os

import pytest


@pytest.fixture(autouse=True)
def quiet(monkeypatch):
    """Other work on the machine is not told of, or each test that reads stderr would see it."""
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
