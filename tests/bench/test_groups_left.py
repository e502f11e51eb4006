"""What a search leaves to choose from, against the room that there is for it."""

import json

import pytest
import torch

from beamsieve_bench import groups_left


def test_equal_cells_leave_every_group_that_is_valid():
    # Logits of no spread: all cells are as good, so all groups reach the threshold.
    found = groups_left.groups_left(64, 4, 16, 1.0, 0.0, torch.Generator().manual_seed(0))
    assert found == 4 * 8 / 4


def test_there_is_room_for_what_searches_leave(capsys):
    tuning = pytest.importorskip("beamsieve_backends.triton_slots.tuning", exc_type=ImportError)
    assert groups_left.main(["--spread", "4", "--requests", "8", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 1.5 < found["mean"] < found["most"] < tuning.LIMIT


@pytest.mark.parametrize("words", ["--cell 100", "--beams 3000", "--valid 0", "--requests 0"])
def test_what_cannot_be_is_refused_in_a_line(words, capsys):
    with pytest.raises(SystemExit) as ended:
        groups_left.main(words.split())
    assert ended.value.code == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
