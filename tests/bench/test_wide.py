"""The wide-beam benchmarks: what their page shows, what they count, and how they choose."""

from pathlib import Path

import pytest
import torch

from beamsieve_bench import wide_figure
from beamsieve_bench.wide_free import best_of
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


@pytest.mark.parametrize(("count", "width"), [(64, 8), (9600, 100), (1600, 100), (33, 5)])
def test_the_best_are_found_by_way_of_groups(count, width):
    torch.manual_seed(0)
    scores = torch.randn(3, count)
    best, places = best_of(scores, width)
    expected = scores.topk(width)
    assert torch.equal(best, expected.values)
    assert torch.equal(places, expected.indices)
