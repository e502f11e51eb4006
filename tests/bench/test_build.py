import json

import pytest

from beamsieve_bench.build import ATTRIBUTES, main, make_rules, measure


@pytest.mark.parametrize("rules", [False, True])
def test_it_measures_an_index_of_the_size_asked_for(rules):
    found = measure("S1", items=300, rules=rules, rounds=1)
    assert found["sids"] == 300
    assert found["device_bytes"] > 0
    assert all(part["wall"] > 0 for part in found["seconds"].values())


def test_rules_name_declared_attributes():
    import numpy as np

    rules = make_rules(200, np.random.default_rng(1))
    named = {name for mine in rules for name in mine}
    assert named == {attribute.name for attribute in ATTRIBUTES}


def test_json_is_one_object(capsys):
    assert main(["--items", "50", "--rounds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rounds"] == 1


def test_no_rounds_are_refused(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["--rounds", "0"])
    assert stopped.value.code == 2
    assert "at least 1" in capsys.readouterr().err
