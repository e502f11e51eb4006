"""Real targeting rules: Snap's political ads of 2018 as items, people of UCI Adult as viewers.

Neither data set is part of the repository: they are looked for in the folder of the environment
variable BEAMSIEVE_DATA, or in ``../shared/data`` beside the repository.

The ads' columns become rules as Snap's readme explains them: an empty column says nothing, a filled
one must be satisfied.

==================  ==========  ===================================================================
attribute           kind        from the columns
==================  ==========  ===================================================================
country, gender,    bits        the listed values
os, district,
metro
age                 bits        AgeBracket: "18-34", "18+" and "35++" (that age and above), "34-"
                                (up to that age)
day                 bits        StartDate and EndDate, as an interval of dates written 20181106
region, category    bits        Included and Excluded
postal, language,   Bloom       the listed values; a viewer may have several
interest,
demographic
cell                Bloom       Radius Targeting, Included and Excluded: the cells of a grid of a
                                quarter of a degree that the circle's bounding box touches (radii
                                are in miles)
==================  ==========  ===================================================================

``Segments`` says only that the advertiser brought a list of people, not who is on it, and is left
out. The ads have no semantic IDs; they get made-up ones whose first token is the organisation's.

Of a viewer, age, sex and native country are real. The data has nothing on the other attributes, so
they are drawn from what the ads name, and some are left unknown.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beamsieve import Catalog
from beamsieve.targeting import Attribute

ADS = "snap-political-ads/PoliticalAds2018.csv"
PEOPLE = "uci-adult/adult.data.gz"
CELL = 0.25
"""Degrees of latitude and longitude of a grid cell."""

BLOOMS = {"postal": 512, "cell": 512, "interest": 256, "demographic": 128, "language": 64}
_LISTED = {
    "country": "CountryCode",
    "gender": "Gender",
    "os": "OsType",
    "district": "Electoral Districts (Included)",
    "metro": "Metros (Included)",
    "postal": "Postal Codes (Included)",
    "language": "Language",
    "interest": "Interests",
    "demographic": "AdvancedDemographics",
}
_BOTH_WAYS = {"region": "Regions", "category": "Location Categories"}
_CIRCLE = re.compile(r"latitude (\S+?);longitude (\S+?);radius ([\d.]+)")
_MILES_PER_DEGREE = 69.0
_OUTSIDE_BRACKETS = re.compile(r",\s*(?![^(]*\))")
_COUNTRIES = {
    "United-States": "united states",
    "England": "united kingdom",
    "Scotland": "united kingdom",
    "Holand-Netherlands": "netherlands",
}
_AGES = range(13, 100)
_FIRST_DAY, _DAYS = date(2018, 6, 25), 200


def data_folder() -> Path:
    """Where the data sets should be; they need not be there."""
    beside = Path(__file__).resolve().parents[2] / "../shared/data"
    return Path(os.environ.get("BEAMSIEVE_DATA", beside))


def read_ads(folder: Path) -> list[dict[str, str]]:
    """The ads, one dict of text columns per row."""
    with (folder / ADS).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def parts(text: str) -> list[str]:
    """The values of a column; a comma within brackets belongs to a value."""
    return [part for part in _OUTSIDE_BRACKETS.split(text) if part]


def cells(text: str) -> set[str]:
    """The grid cells of a column of circles."""
    found = set()
    for latitude, longitude, radius in _CIRCLE.findall(text):
        north, east = float(latitude), float(longitude)
        high = float(radius) / _MILES_PER_DEGREE
        wide = high / math.cos(math.radians(north))
        rows = range(math.floor((north - high) / CELL), math.floor((north + high) / CELL) + 1)
        columns = range(math.floor((east - wide) / CELL), math.floor((east + wide) / CELL) + 1)
        found |= {f"{row},{column}" for row in rows for column in columns}
    return found


def rules_of(ad: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The rules of an ad."""
    rules: dict[str, dict[str, Any]] = {
        name: {"accepts": parts(ad[column])} for name, column in _LISTED.items() if ad[column]
    }
    if bracket := ad["AgeBracket"]:
        low, _, high = bracket.replace("+", "-").partition("-")
        high = high.strip("-")
        rules["age"] = {"from": int(low)} if "+" in bracket else {"to": int(low)}
        if high:
            rules["age"] = {"from": int(low), "to": int(high)}
    rules["day"] = {"from": _day(ad["StartDate"])}
    if ad["EndDate"]:
        rules["day"]["to"] = _day(ad["EndDate"])
    for name, column in _BOTH_WAYS.items():
        for part, side in (("accepts", "Included"), ("refuses", "Excluded")):
            if text := ad[f"{column} ({side})"]:
                rules.setdefault(name, {})[part] = parts(text)
    for part, side in (("accepts", "Included"), ("refuses", "Excluded")):
        if text := ad[f"Radius Targeting ({side})"]:
            rules.setdefault("cell", {})[part] = sorted(cells(text))
    return rules


def _day(moment: str) -> int:
    return int(moment[:10].replace("/", ""))


def attributes_of(rules: list[dict[str, dict[str, Any]]]) -> list[Attribute]:
    """Every attribute, with the values that the ads name."""
    days = [_FIRST_DAY + timedelta(number) for number in range(_DAYS)]
    return [
        Attribute("age", _AGES),
        Attribute("day", [int(f"{day:%Y%m%d}") for day in days]),
        *(
            Attribute(name, sorted(set(named_values(rules, name))))
            for name in ("country", "gender", "os", "region", "district", "metro", "category")
        ),
        *(Attribute(name, bloom=width) for name, width in BLOOMS.items()),
    ]


def named_values(rules: list[dict[str, dict[str, Any]]], name: str) -> Iterator[str]:
    """The values that the rules on an attribute name, as often as they do."""
    for own in rules:
        for part in ("accepts", "refuses"):
            yield from own.get(name, {}).get(part, [])


def semantic_ids(ads: list[dict[str, str]], seed: int = 0) -> NDArray[np.int64]:
    """int64 [ads, 3], of 16 tokens each; a few ads share one."""
    draw = np.random.default_rng(seed)
    names = sorted({ad["OrganizationName"] for ad in ads})
    first = [names.index(ad["OrganizationName"]) % 16 for ad in ads]
    return np.column_stack([first, draw.integers(0, 16, (len(ads), 2))])


def ads_catalog(ads: list[dict[str, str]], seed: int = 0) -> Catalog:
    """The ads with their rules, as a catalog."""
    rules = [rules_of(ad) for ad in ads]
    return Catalog.from_arrays(
        semantic_ids(ads, seed),
        [ad["ADID"] for ad in ads],
        16,
        attributes=attributes_of(rules),
        rules=rules,
    )


def read_viewers(
    folder: Path, ads: list[dict[str, str]], count: int, seed: int = 0
) -> list[dict[str, Any]]:
    """Requests of people, drawn with repetition.

    A third each are from the United States, from other countries that ads name (every country
    equally often), and from anywhere else. The rest of a viewer's attributes is drawn from what the
    ads of the same country name.
    """
    draw = np.random.default_rng(seed)
    with gzip.open(folder / PEOPLE, "rt", encoding="utf-8") as file:
        people = list(csv.DictReader(file, skipinitialspace=True))
    by_country: dict[str, list[dict[str, str]]] = {}
    for person in people:
        country = person["native-country"]
        by_country.setdefault(_COUNTRIES.get(country, country.lower()), []).append(person)
    rules = [rules_of(ad) for ad in ads]
    aimed_at = set(named_values(rules, "country")) & set(by_country)
    groups = [
        ["united states"],
        sorted(aimed_at - {"united states"}),
        sorted(set(by_country) - aimed_at),
    ]
    viewers = []
    for number in range(count):
        country = str(draw.choice(groups[number % 3]))
        person = by_country[country][draw.integers(len(by_country[country]))]
        there = [own for own in rules if country in own["country"]["accepts"]] or rules
        viewer = {"age": int(person["age"]), "gender": person["sex"].upper()}
        viewers.append(
            {**viewer, "country": None if country == "?" else country, **_drawn(there, draw)}
        )
    return viewers


def _drawn(rules: list[dict[str, dict[str, Any]]], draw: np.random.Generator) -> dict[str, Any]:
    """What the data does not tell of a viewer."""

    def some(name: str, most: int) -> list[str]:
        named = sorted(named_values(rules, name))
        return draw.choice(named, draw.integers(0, most + 1)).tolist() if named else []

    first = rules[draw.integers(len(rules))]["day"]["from"]
    found: dict[str, Any] = {"day": first, "language": ["en", *some("language", 1)]}
    for name in ("interest", "demographic", "postal", "cell"):
        found[name] = some(name, 3)
    for name in ("os", "region", "district", "metro", "category"):
        found[name] = next(iter(some(name, 1)), None)
    return found
