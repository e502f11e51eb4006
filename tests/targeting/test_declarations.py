"""Attributes, rules and requests that cannot be used, each refused in a sentence."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from beamsieve.catalog import Catalog
from beamsieve.errors import CatalogError, InputError, RequestError
from beamsieve.index import Index
from beamsieve.targeting import Attribute, UnreachableItemWarning, read_attributes

COUNTRY = Attribute("country", values=["US", "CA", "UK"])
AGE = Attribute("age", values=[18, 25, 35])
PLACE = Attribute("place", bloom=64)
ATTRIBUTES = [COUNTRY, AGE, PLACE]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "cannot be named ''"),
        ({"name": "allow", "bloom": 64}, "cannot be named 'allow'"),
        ({"name": 3, "bloom": 64}, "cannot be named 3"),
        ({"name": "x"}, "needs either values= .* or bloom="),
        ({"name": "x", "values": ["a"], "bloom": 64}, "needs either"),
        ({"name": "x", "bloom": 100}, "filter of 100 bits; take a multiple of 64"),
        ({"name": "x", "bloom": 0}, "filter of 0 bits"),
        ({"name": "x", "bloom": 65600}, "filter of 65600 bits"),
        ({"name": "x", "bloom": 64.0}, r"filter of 64\.0 bits"),
        ({"name": "x", "values": ["a", "b", "a"]}, "has the value 'a' twice"),
        ({"name": "x", "values": ["a", 1.5]}, r"value 1\.5 is neither"),
        ({"name": "x", "values": [True]}, "value True is neither"),
        ({"name": "x", "values": "US"}, "values must be a list"),
        ({"name": "x", "values": 5}, "values must be a list, not 5"),
        ({"name": "x", "values": np.array(5)}, "values must be a list, not array"),
        ({"name": "x", "values": ["\ud800"]}, "is neither a string nor an integer"),
    ],
)
def test_attributes_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CatalogError, match=message):
        Attribute(**arguments)


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(CatalogError, match="Two attributes are named 'age'"):
        Catalog.from_arrays([[0]], attributes=[AGE, Attribute("age", bloom=64)])
    with pytest.raises(CatalogError, match="attributes holds 'age'"):
        Catalog.from_arrays([[0]], attributes=["age"])  # type: ignore[list-item]


def test_attributes_from_json(tmp_path: Path) -> None:
    path = tmp_path / "attributes.json"
    path.write_text(json.dumps([one.as_dict() for one in ATTRIBUTES]))
    assert read_attributes(path) == ATTRIBUTES
    for content, message in [
        ("{", "cannot be read as JSON"),
        ("[" * 100_000, "cannot be read as JSON"),
        ('{"name": "x"}', "give a list"),
        ("[3]", "entry 0: 3 is no attribute"),
        ('[{"name": "x", "blom": 64}]', "entry 0: .* is no attribute"),
        ('[{"bloom": 64}]', "cannot be named ''"),
        ('[{"name": "x", "bloom": 64}, {"name": "x", "bloom": 64}]', "Two attributes"),
    ]:
        path.write_text(content)
        with pytest.raises(CatalogError, match=message):
            read_attributes(path)
    with pytest.raises(CatalogError, match="cannot be read"):
        read_attributes(tmp_path / "none.json")


BAD_RULES = [
    ({"size": {"accepts": ["L"]}}, "name 'size', which is no declared attribute"),
    ("US", "the rules are 'US', but must be a dict"),
    ({"country": ["US"]}, r"rule on 'country' is \['US'\], but must be a dict"),
    ({"country": {"acepts": ["US"]}}, "has the part 'acepts', but its parts are accepts"),
    ({"country": {"accepts": "US"}}, "gives 'US' as 'accepts', but must give a list"),
    ({"country": {"accepts": ["US", "FR"]}}, "names 'FR', which is not among its declared values"),
    ({"country": {"refuses": [None]}}, "names None, which is neither a string nor an integer"),
    ({"age": {"accepts": ["18"]}}, "names '18', which is not among"),
    ({"age": {"accepts": [True]}}, "names True, which is neither"),
    ({"age": {"from": "18"}}, "gives '18' as 'from', but must give an integer"),
    ({"age": {"from": None}}, "gives None as 'from'"),
    ({"country": {"from": 1}}, "is an interval, but its declared values are not integers"),
    ({"place": {"to": 1}}, "is an interval, which a Bloom attribute cannot have"),
    ({"place": {"accepts": [1.5]}}, r"names 1\.5, which is neither"),
]


@pytest.mark.parametrize(("rules", "message"), BAD_RULES)
def test_rules_refused(rules: Any, message: str) -> None:
    arguments: dict[str, Any] = {"attributes": ATTRIBUTES, "rules": [None, rules, {}]}
    with pytest.raises(CatalogError, match=f"sids, row 1: .*{message}"):
        Catalog.from_arrays([[0], [1], [2]], **arguments)
    catalog = Catalog.from_arrays([[0], [1], [2]], **arguments, on_error="skip")
    assert list(catalog.items) == [0, 2]
    assert catalog.rejected == {"unreadable rules": 1}


def test_equal_numbers_of_other_types_are_told_apart() -> None:
    rules = [{"age": {"accepts": [18]}}, {"age": {"accepts": [18.0]}}]
    with pytest.raises(CatalogError, match=r"row 1: .*names 18\.0, which is neither"):
        Catalog.from_arrays([[0], [1]], attributes=[Attribute("age", [18, 1])], rules=rules)
    numpy = [{"age": {"accepts": [np.int64(18)], "refuses": np.array([25])}}, {}]
    index = Index.build(Catalog.from_arrays([[0], [1]], attributes=[AGE], rules=numpy))
    assert index.eligible({"age": 18}, [0, 1]).tolist() == [True, True]
    assert index.eligible({"age": 25}, [0, 1]).tolist() == [False, True]


def test_rules_without_attributes_are_refused() -> None:
    rules = [{"age": {"from": 18}}]
    with pytest.raises(CatalogError, match=r"no declared attribute \(attributes= declares none"):
        Catalog.from_arrays([[0]], rules=rules)
    assert Catalog.from_arrays([[0]], rules=[{}]).rules is None
    with pytest.raises(CatalogError, match="2 rules for 1 semantic IDs"):
        Catalog.from_arrays([[0]], attributes=[AGE], rules=[{}, {}])


def test_rows_of_one_item_must_agree() -> None:
    sids, items = [[0], [1], [2]], ["x", "y", "x"]
    rules: list[Any] = [{"age": {"accepts": [18, 25]}}, {}, {"age": {"to": 25}}]
    catalog = Catalog.from_arrays(sids, items, attributes=[AGE], rules=rules)
    assert Index.build(catalog).eligible({"age": 35}, [0, 1]).tolist() == [False, True]
    rules[2] = None
    with pytest.raises(CatalogError, match="rows of item 'x' give it different rules"):
        Catalog.from_arrays(sids, items, attributes=[AGE], rules=rules)


@pytest.mark.parametrize(
    "rule",
    [
        {"age": {"accepts": []}},
        {"age": {"from": 90}},
        {"age": {"from": 30, "to": 20}},
        {"age": {"accepts": [18], "refuses": [18]}},
        {"place": {"accepts": []}},
        {"place": {"accepts": ["x"], "refuses": ["x"]}},
    ],
    ids=repr,
)
def test_rule_that_accepts_nothing_warns(rule: Any) -> None:
    with pytest.warns(UnreachableItemWarning, match="1 items have a rule .* the first is 'b'"):
        catalog = Catalog.from_arrays(
            [[0], [1]], ["a", "b"], attributes=ATTRIBUTES, rules=[{}, rule]
        )
    assert catalog.report.unreachable_items == 1
    index = Index.build(catalog)
    request = {"age": 18, "place": "x"}
    assert index.eligible(request, [0, 1]).tolist() == [True, False]
    assert index.eligible(None, [0, 1]).tolist() == [True, True]


def test_other_rules_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Catalog.from_arrays(
            [[0], [1]], attributes=ATTRIBUTES, rules=[{}, {"place": {"refuses": ["x"]}}]
        )


RULES = [
    {"country": {"accepts": ["US"]}, "place": {"accepts": ["x", 7]}},
    None,
    {"age": {"from": 25}, "country": {"refuses": ["US"]}},
]
ROWS: dict[str, list[Any]] = {"item": ["a", "b", "c"], "sid": [[0], [1], [2]]}


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl", "jsonl text", "arrow", "pandas"])
def test_rules_from_files(kind: str, tmp_path: Path) -> None:
    expected = Index.build(
        Catalog.from_arrays(ROWS["sid"], ROWS["item"], attributes=ATTRIBUTES, rules=RULES)
    )
    texts = [rule and json.dumps(rule) for rule in RULES]
    table = pa.table({**ROWS, "rules": texts})
    source: Any = tmp_path / f"c.{kind.split()[0]}"
    if kind == "parquet":
        pq.write_table(table, source)
    elif kind == "csv":
        frame = table.to_pandas()
        frame["sid"] = [str(sid) for sid in ROWS["sid"]]
        frame.to_csv(source, index=False)
    elif kind.startswith("jsonl"):
        rules = texts if kind == "jsonl text" else RULES
        rows = [dict(zip(ROWS, row, strict=True)) for row in zip(*ROWS.values(), strict=True)]
        lines = [json.dumps({**row, "rules": rule}) for row, rule in zip(rows, rules, strict=True)]
        source.write_text("\n".join(lines))
    else:
        source = table if kind == "arrow" else table.to_pandas()
    index = Index.build(Catalog.read(source, attributes=ATTRIBUTES))
    assert index.fingerprint == expected.fingerprint
    ignored = Catalog.read(source, columns={"rules": None})
    assert ignored.rules is None
    with pytest.raises(CatalogError, match="no declared attribute"):
        Catalog.read(source)


def test_rules_as_structs() -> None:
    rules: Any = [{"age": {"from": 25}}, None, {"country": {"accepts": ["US"]}}]
    frame = pd.DataFrame({**ROWS, "rules": rules})
    index = Index.build(Catalog.read(frame, attributes=ATTRIBUTES))
    assert index.eligible({"age": 18, "country": "US"}, [0, 1, 2]).tolist() == [False, True, True]
    with pytest.raises(CatalogError, match="column 'rules' has type int64"):
        Catalog.read(frame.assign(rules=1), attributes=ATTRIBUTES)


@pytest.mark.parametrize("text", ["{", "[1]", '"US"', '{"age": {"from": "x"}}'])
def test_bad_rules_in_files_are_named_by_their_row(text: str, tmp_path: Path) -> None:
    path = tmp_path / "c.parquet"
    pq.write_table(pa.table({**ROWS, "rules": ["", text, None]}), path)
    with pytest.raises(CatalogError, match=r"c\.parquet, row 1: the rule"):
        Catalog.read(path, attributes=ATTRIBUTES)
    rejects = tmp_path / "rejects.jsonl"
    catalog = Catalog.read(path, attributes=ATTRIBUTES, on_error="skip", rejects=rejects)
    assert list(catalog.items) == ["a", "c"]
    record = json.loads(rejects.read_text())
    assert (record["row"], record["value"]) == (1, text)


@pytest.fixture
def index() -> Index:
    rules: list[Any] = [{}, {"age": {"from": 25}}]
    return Index.build(
        Catalog.from_arrays([[0], [1]], ["a", "b"], attributes=ATTRIBUTES, rules=rules)
    )


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"size": "L"}, "Request 1 names 'size', which is no attribute"),
        ("US", "Request 1 is 'US'; give a dict"),
        ({"country": 3}, "gives 3 as 'country', but must give a string"),
        ({"age": "25"}, "gives '25' as 'age', but must give an integer"),
        ({"age": [25, 2.5]}, r"gives 2\.5 as 'age'"),
        ({"age": True}, "gives True as 'age'"),
        ({"place": [1.5]}, "must give a string or an integer|must give an integer or a string"),
        ({"place": {"x": 1}}, "gives {'x': 1} as 'place'"),
        ({"allow": "a"}, "gives 'a' as allow; give a list"),
        ({"exclude": 7}, "gives 7 as exclude; give a list"),
    ],
)
def test_requests_refused(index: Index, request_: Any, message: str) -> None:
    with pytest.raises(RequestError, match=message):
        index.encode_requests([{}, request_], 2)
    with pytest.raises(RequestError, match=message):
        index.eligible(request_, [0, 1], place=1)


def test_batches_refused(index: Index) -> None:
    for count in (1, 3):
        with pytest.raises(RequestError, match=f"There are {count} requests for a batch of 2"):
            index.encode_requests([None] * count, 2)
    for wrong in ({"age": 25}, "US", 7):
        with pytest.raises(RequestError, match="give a list with one dict"):
            index.encode_requests(wrong, 1)  # type: ignore[arg-type]


def test_partitions_are_checked() -> None:
    catalog = Catalog.from_arrays([[0, 1]], attributes=[AGE])
    for wrong, message in [
        ({"static": [1]}, "number of parts from 1 for each of the 2 tables"),
        ({"static": [1, 0]}, "number of parts from 1"),
        ({"static": [1, 2.5]}, "number of parts from 1"),
        ({"dynamic": (1.5, 4)}, "target fill, from 0 to 1"),
        ({"dynamic": (0.5, 0)}, "most parts, from 1"),
        ({"dynamic": 0.5}, "target fill"),
        ({"static": [1, 1], "dynamic": (0.5, 4)}, "not both"),
    ]:
        with pytest.raises(InputError, match=message):
            Index.build(catalog, **wrong)  # type: ignore[arg-type]


def test_exact_sets_need_no_attributes() -> None:
    index = Index.build(Catalog.from_arrays([[0], [1], [1]], ["a", "b", "c"]))
    filters = index.encode_requests(
        [{"exclude": ["b"]}, {"exclude": ["c", "b", "?"]}, {"allow": ["c"]}, None, {}], 5
    )
    assert filters.bits.shape == (5, 0)
    assert filters.bloom == ()
    assert filters.leaf_mode.tolist() == [2, 2, 1, 0, 0]
    assert filters.leaf_starts.tolist() == [0, 0, 1, 2, 2, 2]
    assert filters.leaves.tolist() == [1, 1]
    assert index.eligible({"exclude": ["b"]}, [0, 1, 2]).tolist() == [True, False, True]
    with pytest.raises(RequestError, match="its attributes are none"):
        index.encode_requests([{"age": 3}], 1)


@pytest.mark.parametrize("name", ["allow", "exclude"])
@pytest.mark.parametrize(
    ("items", "wrong", "kind"),
    [
        *(([5, 6], wrong, "integers") for wrong in ("5", None, [1], 5.0, True, torch.tensor(5))),
        *((["a", "b"], wrong, "strings") for wrong in (5, None, [1], b"a", 5.0, torch.tensor(5))),
    ],
    ids=str,
)
def test_items_of_another_type_are_refused(
    items: list[Any], wrong: object, kind: str, name: str
) -> None:
    index = Index.build(Catalog.from_arrays([[0], [1]], items))
    with pytest.raises(RequestError, match=f"Request 1 gives .* in {name}, .* are {kind}"):
        index.encode_requests([{}, {name: [items[0], wrong]}], 2)
    with pytest.raises(RequestError, match="Request 3 gives"):
        index.eligible({name: [wrong]}, [0], place=3)


@pytest.mark.parametrize(
    ("items", "exclude"),
    [
        ([5, 6], [5, 7, 2**80]),
        ([5, 6], np.array([5, 7], np.uint8)),
        ([5, 6], [np.int32(5)]),
        (["a", "b"], {"a", "unheard of"}),
        (["a", "b"], np.array(["a", "?"])),
    ],
)
def test_unknown_items_of_the_right_type_change_nothing(items: list[Any], exclude: Any) -> None:
    index = Index.build(Catalog.from_arrays([[0], [1]], items))
    assert index.eligible({"exclude": exclude}, [0, 1]).tolist() == [False, True]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"exclude": np.array("z")}, "as exclude; give a list of items"),
        ({"exclude": np.zeros((40, 2))}, "as exclude; give a list of items"),
        ({"exclude": pa.array([1, 2])}, "as exclude; give a list of items"),
        ({"age": np.array(2)}, "as 'age', but must give an integer"),
        ({"age": pa.array([18, 25])}, "as 'age', but must give an integer"),
    ],
)
def test_arrays_that_are_no_lists_are_refused_in_one_line(
    request_: dict[str, Any], message: str
) -> None:
    index = Index.build(Catalog.from_arrays([[0], [1]], attributes=[AGE]))
    with pytest.raises(RequestError, match=message) as caught:
        index.encode_requests([request_], 1)
    assert "\n" not in str(caught.value)


def test_values_may_come_from_a_generator() -> None:
    values: Any = (value for value in "ab")
    assert Attribute("x", values=values).values == ("a", "b")
