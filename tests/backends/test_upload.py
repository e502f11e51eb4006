"""Every byte reaches its place, whatever the size of the buffers. (CUDA is played by the CPU.)"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from beamsieve_backends import upload  # noqa: E402


class FakeStream:
    """Runs everything at once, and notes what was waited for."""

    def __init__(self, *_: Any) -> None:
        self.waited: list[str] = []

    def wait_stream(self, _: Any) -> None:
        self.waited.append("stream")

    def synchronize(self) -> None:
        self.waited.append("end")

    def record(self, *_: Any) -> None:
        self.waited.append("record")


@pytest.fixture
def no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "Event", FakeStream)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(
        torch, "empty", lambda *size, pin_memory=False, **options: empty(*size, **options)
    )


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8, np.int16])
@pytest.mark.parametrize(("chunk", "fillers"), [(64, 1), (1000, 3), (1 << 20, 4)])
def test_every_byte_reaches_its_place(no_card: None, dtype: Any, chunk: int, fillers: int) -> None:
    array = np.random.default_rng(1).integers(0, 100, (123, 7)).astype(dtype)
    sent = upload.Uploader(torch.device("cpu"), chunk, fillers).upload(array)
    assert sent.numpy().dtype == dtype
    assert np.array_equal(sent.numpy(), array)


def test_a_copy_on_the_host_is_its_own(tmp_path: Path) -> None:
    np.save(tmp_path / "held.npy", np.arange(10))
    mapped = np.load(tmp_path / "held.npy", mmap_mode="r")
    held = upload.to_device(mapped, torch.device("cpu"))
    held += 1
    assert mapped.tolist() == list(range(10))
    assert held.tolist() == list(range(1, 11))
