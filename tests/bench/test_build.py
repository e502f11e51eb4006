import json

import pytest

from beamsieve import Catalog, Index
from beamsieve_bench.build import (
    differing_array,
    main,
    measure,
    measure_update,
    rows_of,
)
from beamsieve_bench.made_rules import ATTRIBUTES, make_rules


@pytest.mark.parametrize("rules", [False, True])
def test_it_measures_an_index_of_the_size_asked_for(rules):
    found = measure(*rows_of("S1", 300), rules=rules, rounds=1)
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


def test_an_update_is_measured_beside_a_full_build_of_the_same():
    found = measure_update(*rows_of("S1", 2000), rounds=1, threads=2)
    assert (found["removed"], found["added"], found["threads"]) == (10, 10, 2)
    assert set(found["seconds"]) == {"full build", "update"}


def test_indexes_that_differ_are_told_apart():
    rows, vocabulary = rows_of("S1", 50)
    one = Index.build(Catalog.from_arrays(rows, codebooks=vocabulary))
    other = Index.build(Catalog.from_arrays(rows[::-1], codebooks=vocabulary))
    assert differing_array(one, one) is None
    assert differing_array(one, other) == "items"


def test_rows_can_be_kept_and_measured_alone(tmp_path, capsys):
    path = str(tmp_path / "rows.npy")
    assert main(["--workload", "M1", "--items", "30000", "--keep", path, "--rounds", "0"]) == 0
    assert main(["--sids", path, "--rounds", "1", "--threads", "1", "2", "--json"]) == 0
    one, two = map(json.loads, capsys.readouterr().out.splitlines())
    assert one["sids"] == two["sids"] == 30000
    assert one["fingerprint"] == two["fingerprint"]
    assert (one["threads"], two["threads"]) == (1, 2)
