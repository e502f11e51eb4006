"""Whether an ad may be shown to a viewer, read off the ad's own columns.

This is the judge of :mod:`beamsieve_bench.targeting_real_rules`. It knows nothing of rules, bits or
cells as :mod:`beamsieve_bench.targeting_ads` makes them: each question is asked of the text in the
file, one ad and one viewer at a time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

ANY_OF = {
    "postal": "Postal Codes (Included)",
    "language": "Language",
    "interest": "Interests",
    "demographic": "AdvancedDemographics",
}
ONE = {
    "country": "CountryCode",
    "gender": "Gender",
    "os": "OsType",
    "district": "Electoral Districts (Included)",
    "metro": "Metros (Included)",
    "region": "Regions (Included)",
    "category": "Location Categories (Included)",
}
NOT_ONE = {"region": "Regions (Excluded)", "category": "Location Categories (Excluded)"}


def may_be_shown(ad: Mapping[str, str], viewer: Mapping[str, Any]) -> bool:
    """Whether every filled column of the ad is satisfied by what is known of the viewer."""
    return (
        all(not ad[column] or lists(ad[column], viewer.get(name)) for name, column in ONE.items())
        and all(
            not ad[column] or any(lists(ad[column], value) for value in viewer[name])
            for name, column in ANY_OF.items()
        )
        and all(
            not ad[column] or (viewer[name] is not None and not lists(ad[column], viewer[name]))
            for name, column in NOT_ONE.items()
        )
        and of_age(ad["AgeBracket"], viewer["age"])
        and on_air(ad["StartDate"], ad["EndDate"], viewer["day"])
        and in_reach(
            ad["Radius Targeting (Included)"], ad["Radius Targeting (Excluded)"], viewer["cell"]
        )
    )


def lists(column: str, value: str | None) -> bool:
    """Whether a column of values between commas names this one."""
    return value is not None and f",{value}," in f",{column},"


def of_age(bracket: str, age: int) -> bool:
    """AgeBracket: "18-34", "18+", "35++", "34-"."""
    if not bracket:
        return True
    if bracket.endswith("+"):
        return age >= int(bracket.rstrip("+"))
    if bracket.endswith("-"):
        return age <= int(bracket[:-1])
    low, high = bracket.split("-")
    return int(low) <= age <= int(high)


def on_air(start: str, end: str, day: int) -> bool:
    """Whether the day, written 20181106, is none before the ad's first or after its last."""
    text = f"{day // 10000}/{day // 100 % 100:02}/{day % 100:02}"
    return start[:10] <= text and (not end or text <= end[:10])


def in_reach(included: str, excluded: str, viewer_cells: list[str]) -> bool:
    """Whether one of the viewer's cells touches an included circle's box, and no excluded one's."""
    if not included and not excluded:
        return True
    return any(
        (not included or touches(included, cell)) and not (excluded and touches(excluded, cell))
        for cell in viewer_cells
    )


def touches(circles: str, cell: str) -> bool:
    """Whether a cell of a quarter of a degree, "row,column", touches the box around a circle."""
    south, west = (int(part) / 4 for part in cell.split(","))
    for circle in circles.split(","):
        latitude, longitude, miles = (float(part.split()[1]) for part in circle.split(";"))
        high = miles / 69
        wide = high / math.cos(latitude * math.pi / 180)
        if (
            south <= latitude + high
            and latitude - high < south + 0.25
            and west <= longitude + wide
            and longitude - wide < west + 0.25
        ):
            return True
    return False
