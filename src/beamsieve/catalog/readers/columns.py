"""Which columns of a table hold items, semantic IDs, titles and rules."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beamsieve.errors import CatalogError

_ITEM = ("item", "item_id")
_SID = ("sid", "semantic_id")
_TITLE = ("title",)
_RULES = ("rules",)

Names = Mapping[str, str | Sequence[str] | None] | None
"""What the caller calls the columns; None for one to leave unread."""
_LEVEL = re.compile(r"(sid_?|semantic_id_?|t_?|token_?|level_?)(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Found:
    """Column names. ``sid`` is None where ``levels`` names one column per level."""

    item: str
    sid: str | None
    levels: tuple[str, ...]
    title: str | None
    rules: str | None

    @property
    def all(self) -> tuple[str, ...]:
        """Every column to read."""
        names = (self.item, self.sid, *self.levels, self.title, self.rules)
        return tuple(dict.fromkeys(name for name in names if name is not None))


def find_columns(source: str, names: Sequence[str], wanted: Names) -> Found:
    """Find the columns by name, in any letter case, or by what the caller calls them.

    Raises:
        CatalogError: a column is missing or there twice.
    """
    if wanted is not None and not isinstance(wanted, Mapping):
        raise CatalogError(
            f'columns is {wanted!r}; give a dict such as {{"item": "asin", "sid": "code"}}.'
        )
    wanted = dict(wanted or {})
    unknown = set(wanted) - {"item", "sid", "title", "rules"}
    if unknown:
        raise CatalogError(
            f"columns= has the key {sorted(unknown)[0]!r}; its keys are item, sid, title and rules."
        )
    item = _one(source, names, "item", wanted.get("item"), _ITEM)
    others = []
    for role, usual in (("title", _TITLE), ("rules", _RULES)):
        left_out = role in wanted and wanted[role] is None
        others.append(None if left_out else _one(source, names, role, wanted.get(role), usual))
    title, rules = others
    if item is None:
        raise CatalogError(f'{source}: column "item" is missing; {_has(names)}')
    asked = wanted.get("sid")
    if asked is not None and not isinstance(asked, str):
        if not isinstance(asked, Sequence) or not asked:
            raise CatalogError(
                f"columns= names {asked!r} as sid; name one column, or one per level."
            )
        for name in asked:
            _one(source, names, "sid", name, ())
            if asked.count(name) > 1:
                raise CatalogError(f"columns= names {name!r} twice as sid; name each level once.")
        return Found(item, None, tuple(asked), title, rules)
    sid = _one(source, names, "sid", asked, _SID)
    levels = _levels(names)
    if sid is not None:
        if asked is None and levels and levels[0].lower().startswith("s"):
            listed = ", ".join(map(repr, levels))
            raise CatalogError(
                f"{source}: column {sid!r} and the columns {listed} both spell semantic IDs; name "
                f'the one to read with columns={{"sid": …}}.'
            )
        levels = ()
    if sid is None and not levels:
        raise CatalogError(
            f'{source}: column "sid" (or "sid_0", "sid_1", …) is missing; {_has(names)}'
        )
    return Found(item, sid, levels, title, rules)


def _has(names: Sequence[str]) -> str:
    return f"the file has {', '.join(map(repr, names))}; name another with columns=."


def _one(
    source: str,
    names: Sequence[str],
    role: str,
    asked: str | Sequence[str] | None,
    usual: Sequence[str],
) -> str | None:
    """The one column of this role, if there is one."""
    if asked is not None:
        if not isinstance(asked, str):
            raise CatalogError(f"columns= names several columns as {role}; name one.")
        if asked not in names:
            raise CatalogError(f"{source}: column {asked!r} is missing; {_has(names)}")
        found = [name for name in names if name == asked]
    else:
        found = []
        for name in usual:
            found = found or [own for own in names if own.lower() == name]
    if len(found) > 1:
        raise CatalogError(f"{source}: column {found[0]!r} is there {len(found)} times.")
    return found[0] if found else None


def _levels(names: Sequence[str]) -> tuple[str, ...]:
    """Columns numbered from 0 or 1 without a gap, in order; none if there are no such."""
    families: dict[str, dict[int, str]] = {}
    for name in names:
        match = _LEVEL.fullmatch(name)
        if match:
            families.setdefault(match[1].lower(), {})[int(match[2])] = name
    for prefix in sorted(families, key=lambda prefix: not prefix.startswith("s")):
        family = families[prefix]
        first = min(family)
        if first <= 1 and sorted(family) == list(range(first, first + len(family))):
            return tuple(family[number] for number in sorted(family))
    return ()
