"""The wide-beam benchmarks: what their page shows, what they count, and how they choose."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from beamsieve_bench import wide_figure, wide_power, wide_timing
from beamsieve_bench.wide_counts import counts, executed_tflop
from beamsieve_bench.wide_free import best_continuations
from beamsieve_bench.wide_workload import GRACE

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results" / "wide"


def test_page_and_figure_say_what_was_measured(tmp_path):
    page, figure = tmp_path / "page.md", tmp_path / "figure.svg"
    written = (ROOT / "docs" / "wide-beams.md").read_text("utf-8")
    page.write_text(written, "utf-8")
    wide_figure.main([str(RESULTS), str(figure), str(page)])
    assert page.read_text("utf-8") == written
    assert figure.read_text("utf-8") == (ROOT / "docs/figures/wide-ladder.svg").read_text("utf-8")


def test_a_folder_without_rows_and_a_page_without_its_part_are_errors(tmp_path):
    with pytest.raises(ValueError, match="no measured row"):
        wide_figure.bars_of(tmp_path)
    with pytest.raises(ValueError, match="no part between"):
        wide_figure.rewritten("a page", "ladder", "a table")


def test_the_operations_of_a_request_are_those_of_its_products():
    assert GRACE.tflop_per_request(GRACE.dynamic) == pytest.approx(0.4538, abs=1e-4)
    assert GRACE.tflop_per_request(GRACE.fixed) == pytest.approx(0.5446, abs=1e-4)
    assert GRACE.rows(GRACE.dynamic) == 16 * 2561


def test_executed_operations_leave_out_what_is_looked_up():
    nominal, widths = GRACE.tflop_per_request(GRACE.dynamic), GRACE.dynamic
    assert executed_tflop(GRACE, widths, "paged") == pytest.approx(nominal)
    d2, rows = 2 * GRACE.config.width**2 / 1e12, 1 + sum(widths[:-1])
    # The first layer's product of 6 d^2 for every row; of 4 d^2 behind the start and one token, and
    # with pairs behind two tokens.
    left = (6 * rows + 4 * 513) * d2
    assert executed_tflop(GRACE, widths, "in_place", pairs=False) == pytest.approx(nominal - left)
    left += 4 * 1024 * d2
    assert executed_tflop(GRACE, widths, "in_place") == pytest.approx(nominal - left)
    # A first step that keeps some tokens only runs by itself.
    few = (256, 512, 512, 512)
    every = counts(GRACE, few)
    assert every["feed in"].launches == GRACE.config.layers * 4
    assert every["feed in"].flop == 2 * 16 * (1 + 256 + 512 + 512) * 1024 * 8192 * 3


@pytest.mark.parametrize(
    ("beams", "vocabulary", "width"), [(4, 64, 5), (30, 96, 60), (7, 64, 14), (3, 33, 5)]
)
def test_the_best_are_found_by_way_of_groups(beams, vocabulary, width):
    torch.manual_seed(0)
    logits, scores = torch.randn(3, beams, vocabulary), torch.randn(3, beams)
    scores[2, 1] = -torch.inf
    best, places = best_continuations(logits, scores, width)
    expected = (torch.log_softmax(logits, -1) + scores[..., None]).flatten(1)
    torch.testing.assert_close(best, expected.topk(width).values)
    torch.testing.assert_close(expected.gather(1, places), best)
    assert all(len(row.unique()) == width for row in places)


@pytest.mark.parametrize("replays", [1, 3])
def test_a_series_shorter_than_two_readings_of_power_is_measured(replays, monkeypatch):
    nvml = SimpleNamespace(
        NVMLError=RuntimeError,
        nvmlInit=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda name: name,
        nvmlDeviceGetClockInfo=lambda gpu, kind: 1500,
        nvmlDeviceGetPowerUsage=lambda gpu: 690_000,
        nvmlDeviceGetTotalEnergyConsumption=lambda gpu: 7,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda at: SimpleNamespace(uuid="u"))
    series = np.array([[12.0 * n, 12.0 * n + 11.0] for n in range(replays)])
    monkeypatch.setattr(wide_power, "series_of", lambda *given, **how: series)
    graph: Any = SimpleNamespace(replay=None)
    found = wide_power.measured(wide_power.Watch(), graph, replays, 0.0)
    assert found["ms"] == [11.0] * replays
    assert found["clock_mhz"] == [1500, 1500, 1500]
    assert found["watts"] is found["joules_per_decode"] is None
    json.dumps(found, allow_nan=False)


class Clock:
    """A device on which replay n takes a given time; its events read it."""

    def __init__(self, monkeypatch, milliseconds):
        self.now, self.replays, self.milliseconds = 0.0, 0, milliseconds
        clock = self

        class Event:
            def __init__(self, **how):
                pass

            def record(self):
                self.at = clock.now

            def synchronize(self):
                pass

            def elapsed_time(self, later):
                return later.at - self.at

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def run(self):
        self.now += self.milliseconds(self.replays)
        self.replays += 1


def test_a_queue_is_timed_at_its_begin_and_again_once_it_keeps_still(monkeypatch):
    """Ten to warm up, 300, then blocks of a hundred: the dip, one of recovery, then still."""
    course = [11.0] * 310 + [14.0] * 100 + [12.5] * 100
    clock = Clock(monkeypatch, lambda n: course[n] if n < len(course) else 12.0)
    first, settled = wide_timing.settled_times(clock.run, 300, 60.0)
    assert (first.p50, first.p99, first.replays) == (11.0, 11.0, 300)
    assert (settled.times.p50, settled.times.p99, settled.times.replays) == (12.0, 12.0, 300)
    assert settled.still
    # Two still blocks are seen, and one more was under way.
    assert settled.blocks == pytest.approx((14.0, 12.5, 12.0, 12.0, 12.0))
    assert settled.seconds == pytest.approx(100 * sum(settled.blocks) / 1e3)
    assert clock.replays == 10 + 300 + 100 * len(settled.blocks) + 300


def test_a_queue_that_does_not_keep_still_is_timed_when_the_time_is_up(monkeypatch):
    clock = Clock(monkeypatch, lambda n: 10.0 + (n // 50 % 3))
    _, settled = wide_timing.settled_times(clock.run, 100, 2.0)
    assert not settled.still
    assert 2.0 <= settled.seconds <= 2.0 + 2 * 1.2
    said = settled.as_dict()
    assert said["replays"] == 100
    assert said["still"] is False
    json.dumps(said)
