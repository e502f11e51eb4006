"""What cannot be opened is refused in a sentence."""

import sys
from importlib.util import find_spec
from types import SimpleNamespace

import numpy as np
import pytest
from host_device import HostCupyBackend, HostDevice

import beamsieve as bs
from beamsieve.errors import BackendError
from beamsieve_backends.cupy_raw import CupyBackend


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed here")
def test_without_cupy_the_pip_line_is_named():
    with pytest.raises(BackendError, match=r"pip install 'beamsieve\[cupy\]'"):
        CupyBackend()


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_a_device_that_is_not_there():
    with pytest.raises(BackendError, match=r"cuda"):
        CupyBackend("cuda:99")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tile": "3"}, "no option 'tile'"),
        ({"clear_products": "1"}, "'on' or 'off', not '1'"),
        ({"replays": "0"}, "'10' or '1', not '0'"),
    ],
)
def test_an_unknown_option(options, sentence):
    with pytest.raises(BackendError, match=sentence):
        CupyBackend(options=options)


@pytest.mark.parametrize(("options", "early"), [({}, True), ({"early": "off"}, False)])
def test_kernels_start_early_unless_told_not_to(monkeypatch, options, early):
    monkeypatch.setattr(HostDevice, "early", True)
    assert HostCupyBackend(options=options)._device.early is early


@pytest.mark.skipif(find_spec("cupy") is None, reason="needs CuPy")
def test_another_kind_of_device():
    with pytest.raises(BackendError, match="not on 'cpu'"):
        CupyBackend("cpu")


def test_an_index_for_which_there_is_no_room_is_told_what_is_free(backend, monkeypatch):
    index = bs.Index.build(bs.Catalog.from_arrays([[0, 1], [1, 0]], codebooks=2))

    def never(index):
        raise AssertionError("tried without room")

    monkeypatch.setattr(backend, "load", never)
    monkeypatch.setattr(backend._device, "free_bytes", lambda: 12_345, raising=False)
    with pytest.raises(BackendError, match="12,345 are free"):
        bs.Engine(index, backend=backend)


def test_a_plan_is_not_measured_while_a_stream_is_captured(backend, monkeypatch):
    sids = np.array([[0, 1], [1, 0]])
    index = bs.Index.build(bs.Catalog.from_arrays(sids, codebooks=2))
    engine = bs.Engine(index, backend=backend)
    monkeypatch.setattr(backend._device, "capturing", lambda: True)
    with pytest.raises(BackendError, match=r"^warm_up times steps.*before the capture begins\.$"):
        engine.warm_up(1, [2, 2], np.eye(2, dtype=np.float32))


@pytest.mark.parametrize(("options", "replays"), [({}, 10), ({"replays": "1"}, 1)])
def test_what_is_timed_is_replayed_as_often_as_the_options_say(monkeypatch, options, replays):
    def replayed_seconds(device, work, times):
        return float(times)

    graph = SimpleNamespace(replayed_seconds=replayed_seconds)
    monkeypatch.setitem(sys.modules, "beamsieve_backends.cupy_raw.graph", graph)
    backend = HostCupyBackend(options=options)
    assert CupyBackend.seconds(backend, lambda: None) == replays
