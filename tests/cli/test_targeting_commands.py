"""Targeting on the command line: rules in a column, attributes and requests in files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ATTRIBUTES = [{"name": "country", "values": ["US", "DE"]}, {"name": "place", "bloom": 64}]
RULES = {
    "a": {"country": {"accepts": ["US"]}},
    "b": {"country": {"refuses": ["US"]}, "place": {"accepts": ["x", "y"]}},
    "c": {},
}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A catalog with rules, the attributes, and histories."""
    lines = [
        {"item": item, "sid": [n, 0], "rules": json.dumps(rule)}
        for n, (item, rule) in enumerate(RULES.items())
    ]
    (tmp_path / "catalog.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "attributes.json").write_text(json.dumps(ATTRIBUTES))
    histories = [{"history": ["a", "b"], "target": "c"}, {"history": ["c"], "target": "a"}]
    (tmp_path / "histories.jsonl").write_text("\n".join(map(json.dumps, histories)))
    return tmp_path


def build(run, files, *words):
    return run(
        *("build", files / "catalog.jsonl", "-o", files / "index", *words),
        *("--attributes", files / "attributes.json"),
    )


def test_build_takes_rules_and_inspect_shows_their_matchers(run, files):
    assert build(run, files).code == 0

    stats = json.loads(run("inspect", files / "index", "--json").stdout)
    assert stats["attributes"] == ATTRIBUTES
    assert [step["step"] for step in stats["matchers"]] == [1, 2]
    shown = run("inspect", files / "index").stdout
    assert "place: fill" in shown


def test_inspect_reads_a_catalog_with_rules(run, files):
    declared = "--attributes", files / "attributes.json"
    shown = json.loads(run("inspect", files / "catalog.jsonl", *declared, "--json").stdout)
    assert shown["items"] == 3
    assert "--attributes declares none; it belongs there" in (
        run("inspect", files / "catalog.jsonl").complaint
    )
    build(run, files)
    assert "an index has its own" in run("inspect", files / "index", *declared).complaint


def test_build_divides_matchers(run, files):
    assert build(run, files, "--static", "2,1").code == 0
    assert build(run, files, "--dynamic", "0.5,4").code == 0
    assert "not both" in build(run, files, "--static", "2,1", "--dynamic", "0.5,4").complaint
    assert "number of parts" in build(run, files, "--static", "2").complaint
    assert build(run, files, "--dynamic", "0.5").code == 2
    assert build(run, files, "--static", "many").code == 2


def test_verify_compares_rules(run, files):
    build(run, files)
    catalog = files / "catalog.jsonl"
    assert run("verify", files / "index", catalog).code == 0

    text = catalog.read_text()
    catalog.write_text(text.replace('\\"y\\"', '\\"z\\"'))
    assert (
        "item 'b' has another targeting rule" in run("verify", files / "index", catalog).complaint
    )
    catalog.write_text(text.replace('accepts\\": [\\"US\\"]', 'accepts\\": [\\"DE\\"]'))
    assert (
        "item 'a' has another targeting rule" in run("verify", files / "index", catalog).complaint
    )


def test_an_item_that_nobody_can_see_is_said_but_kept(run, files):
    text = (files / "catalog.jsonl").read_text()
    (files / "catalog.jsonl").write_text(text.replace('[\\"US\\"]}}', "[]}}"))

    outcome = build(run, files)

    assert outcome.code == 0
    assert "accepts nothing" in outcome.complaint
    assert "'a'" in outcome.complaint


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[", "attributes.json"),
        ('[{"name": "country"}]', "country"),
        ('[{"name": "place", "bloom": 100}]', "multiple of 64"),
        ('[{"name": "country", "values": ["DE"]}]', "US"),
    ],
)
def test_attributes_that_cannot_be_used(run, files, content, says):
    (files / "attributes.json").write_text(content)
    outcome = build(run, files)
    assert outcome.code == 1
    assert says in outcome.complaint
    assert not (files / "index").exists()


def test_recommend_keeps_to_the_requests(run, files):
    build(run, files)
    data = (files / "histories.jsonl", files / "index", "-o", files / "model")
    assert run("train", *data, "--epochs", 1, "--threads", 1).code == 0
    requests = files / "requests.jsonl"
    words = (
        *("recommend", files / "model", files / "index", files / "histories.jsonl", "--json"),
        *("--backend", "torch:cpu", "--requests", requests),
    )

    requests.write_text('{"country": "DE", "place": ["y", "q"]}\n{"exclude": ["c", "b"]}\n')
    outcome = run(*words)
    assert outcome.code == 0, outcome.stderr
    found = [json.loads(line)["items"] for line in outcome.stdout.splitlines()]
    assert {hit["item"] for hit in found[0]} == {"b", "c"}
    # All that is unknown about a viewer is unknown to every rule.
    assert [hit["item"] for hit in found[1]] == []

    requests.write_text("null\nnull\n")
    found = [json.loads(line)["items"] for line in run(*words).stdout.splitlines()]
    assert [len(hits) for hits in found] == [3, 3]

    requests.write_text("null\n")
    assert "1 requests for 2 histories" in run(*words).complaint
    requests.write_text('null\n{"planet": "Mars"}\n')
    assert "Request 1" in run(*words).complaint
    for line in ("{", "[" * 100_000, "[null, null]"):
        requests.write_text(f"null\n{line}\n")
        assert "line 2" in run(*words).complaint


@pytest.mark.parametrize(
    "words",
    [
        "--dynamic 0.5,inf",
        "--dynamic 0.5,2.7",
        "--dynamic 0.5,0",
        "--dynamic 1.5,8",
        "--dynamic nan,8",
        "--dynamic 0.5",
        "--dynamic 0.5,8,9",
        "--static 8,0,8",
        "--static 8,8,8 --dynamic 0.5,8",
    ],
)
def test_parts_that_are_no_numbers_of_parts(run, catalog, tmp_path, words):
    outcome = run("build", catalog, "-o", tmp_path / "x", *words.split())
    assert outcome.code == 2
    assert words.split()[0] in outcome.complaint
    assert not (tmp_path / "x").exists()
