"""Who may see an item: attributes, rules, requests, and the exact answer.

An **attribute** is something that a request may say about its viewer. Declare a *bit* attribute
when its values are few and known, a *Bloom* attribute when they are many:

>>> country = Attribute("country", values=["US", "CA", "UK"])
>>> age = Attribute("age", values=[18, 25, 35])
>>> place = Attribute("place", bloom=256)

A value is a string or an integer; ``25`` and ``"25"`` are two values.

A **rule** of an item on one attribute is a dict with any of these parts. It accepts a value when
every part does:

- ``{"accepts": [...]}`` accepts these values alone;
- ``{"refuses": [...]}`` accepts all values but these;
- ``{"from": 25, "to": 34}`` accepts the declared integers from 25 to 34, both included; one of the
  two may be left out (a bit attribute of integers only).

An attribute that an item does not mention, or mentions with ``None``, ``{}`` or ``{"refuses":
[]}``, has *no rule*: it accepts every viewer, also one about whom nothing is known. Rules belong to
the item: if an item stands in several rows of the catalog, all of them give it the same rules, in
whatever words.

A **request** is a dict. Per attribute it gives one value, a list of values, or nothing (absent,
``None`` or ``[]``). It may also give ``exclude``, items not to return, and ``allow``, the only
items to return; ``None`` means no such list, and items that the catalog does not have change
nothing. An item of another type than the catalog's, ``5`` among strings, is an error. The request
``None`` asks for no targeting at all; ``{}`` says that nothing is known of the viewer, and so does
a request that gives ``exclude`` or ``allow`` alone.

An item is **eligible** for a request when each attribute on which it has a rule is satisfied:

=============================  ====================================================
the request gives              the item's rule is satisfied when it accepts
=============================  ====================================================
values of a bit attribute      every one of them
values of a Bloom attribute    at least one of them
nothing                        never: what is not known cannot satisfy a rule
a value that was not declared  never (bit attributes): it is as good as not known
=============================  ====================================================

and when the item is allowed and not excluded.

>>> rules = {"country": {"accepts": ["US", "CA"]}, "age": {"from": 25}}
>>> viewer = {"country": "US", "age": 35, "place": ["Boston", "Maine"]}
>>> eligible([country, age, place], rules, viewer)
True
>>> eligible([country, age, place], rules, {**viewer, "country": ["US", "UK"]})
False
>>> eligible([country, age, place], rules, {"country": "US"})  # whose age is not known
False
>>> eligible([country, age, place], {"place": {"refuses": ["Maine"]}}, viewer)  # Boston will do
True
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamsieve_spec.trie import CatalogError, InputError

Value = int | str
Rule = Mapping[str, Any] | None
Request = Mapping[str, Any] | None

PARTS = {"accepts", "refuses", "from", "to"}
EXACT_SETS = {"allow", "exclude"}
LISTS = (list, tuple, set, frozenset)


class RequestError(InputError):
    """A request's targeting cannot be read."""


@dataclass(frozen=True)
class Attribute:
    """Exactly one of ``values``, the values it may have, and ``bloom``, the bits of its filter.

    Raises:
        CatalogError: values that repeat or are neither strings nor integers, a name that a request
            uses otherwise, or a filter that is not 64, 128, … 65536 bits.
    """

    name: str
    values: Sequence[Value] | None = None
    bloom: int | None = None

    def __post_init__(self) -> None:
        if not self.name or self.name in EXACT_SETS:
            raise CatalogError(f"an attribute cannot be named {self.name!r}")
        if (self.values is None) == (self.bloom is None):
            raise CatalogError(f"attribute {self.name!r} needs values or bloom, not both")
        if self.bloom is not None and (self.bloom % 64 or not 64 <= self.bloom <= 65536):
            raise CatalogError(f"attribute {self.name!r}: {self.bloom} is not 64, 128, … 65536")
        values = list(self.values or [])
        if not all(map(is_value, values)) or len(set(values)) != len(values):
            raise CatalogError(f"attribute {self.name!r} needs distinct strings or integers")


def is_value(value: Any) -> bool:
    """Whether ``value`` is a string or an integer (True and False are neither)."""
    return isinstance(value, str | int) and not isinstance(value, bool)


def has_rule(rule: Rule) -> bool:
    """Whether ``rule`` restricts anyone: it has a part other than an empty list of refusals."""
    return rule is not None and any(part != "refuses" or rule[part] for part in rule)


def accepts(attribute: Attribute, rule: Mapping[str, Any], value: Value) -> bool:
    """Whether an item with this rule accepts one value."""
    if attribute.values is not None and value not in attribute.values:
        return False
    return (
        ("accepts" not in rule or value in rule["accepts"])
        and ("refuses" not in rule or value not in rule["refuses"])
        and ("from" not in rule or value >= rule["from"])
        and ("to" not in rule or value <= rule["to"])
    )


def meaning(attribute: Attribute, rule: Rule) -> Any:
    """What a rule comes to, however it is said: nothing, the values accepted, or those refused.

    >>> age = Attribute("age", values=[18, 25, 35])
    >>> meaning(age, {"from": 20}) == meaning(age, {"refuses": [18]}) == ("accepts", {25, 35})
    True
    """
    if rule is None or not has_rule(rule):
        return None
    if attribute.values is None and "accepts" not in rule:
        return "refuses", set(rule["refuses"])
    listed = rule["accepts"] if attribute.values is None else attribute.values
    return "accepts", {value for value in listed if accepts(attribute, rule, value)}


def values_given(attribute: Attribute, request: Mapping[str, Any]) -> list[Value]:
    """The values that a request gives for an attribute; none when it is unknown."""
    given = request.get(attribute.name)
    if given is None:
        return []
    return list(given) if isinstance(given, LISTS) else [given]


def eligible(attributes: Sequence[Attribute], rules: Mapping[str, Rule], request: Request) -> bool:
    """Whether an item with these rules, one per attribute, may be shown to this request."""
    if request is None:
        return True
    for attribute in attributes:
        rule = rules.get(attribute.name)
        if rule is None or not has_rule(rule):
            continue
        accepted = [accepts(attribute, rule, value) for value in values_given(attribute, request)]
        if not accepted or not (any(accepted) if attribute.bloom else all(accepted)):
            return False
    return True


def permitted(item: Hashable, request: Request) -> bool:
    """Whether the request's exact sets permit the item.

    >>> [permitted(item, {"allow": ["a", "b"], "exclude": ["b"]}) for item in "abc"]
    [True, False, False]
    """
    if request is None:
        return True
    allow, exclude = request.get("allow"), request.get("exclude")
    return (allow is None or item in allow) and (exclude is None or item not in exclude)


def check_rules(attributes: Sequence[Attribute], rules: Mapping[str, Rule]) -> None:
    """Refuse rules on an attribute that was not declared, or that say what cannot be said.

    Raises:
        CatalogError: also for a value that a bit attribute does not have.
    """
    declared = {attribute.name: attribute for attribute in attributes}
    for name, said in rules.items():
        rule = {} if said is None else said
        if name not in declared or not set(rule) <= PARTS:
            raise CatalogError(f"no such rule: {name!r}: {rule}")
        values = declared[name].values
        lists = [rule[part] for part in ("accepts", "refuses") if part in rule]
        bounds = [rule[part] for part in ("from", "to") if part in rule]
        if not all(isinstance(values, LISTS) for values in lists):
            raise CatalogError(f"{name!r}: {rule}: accepts and refuses take lists")
        listed = [value for values in lists for value in values]
        if not all(map(is_value, listed)) or not all(type(bound) is int for bound in bounds):
            raise CatalogError(f"{name!r}: {rule}: neither strings nor integers")
        if bounds and (values is None or not all(isinstance(v, int) for v in values)):
            raise CatalogError(f"{name!r}: {rule}: an interval needs declared integers")
        if values is not None and not set(listed) <= set(values):
            raise CatalogError(f"{name!r}: {rule}: a value that was not declared")


def check_request(
    attributes: Sequence[Attribute], request: Request, items: Iterable[Hashable]
) -> None:
    """Refuse a request that names no attribute of the catalog, or a value of another type.

    A value that was not declared is no error: viewers come from places that no list foresaw. A
    value of a type that no declared value has is one, for it is never meant; so is an item in
    allow or exclude of a type that none of the catalog's ``items`` has.

    Raises:
        RequestError: also for an allow or exclude that is no list.

    >>> check_request([], {"exclude": ["a", "unheard of"]}, items=["a", "b"])
    >>> check_request([], {"exclude": [5]}, items=["a", "b"])
    Traceback (most recent call last):
    beamsieve_spec.targeting_rules.RequestError: exclude cannot hold 5
    """
    if request is None:
        return
    unknown = set(request) - {attribute.name for attribute in attributes} - EXACT_SETS
    if unknown:
        raise RequestError(f"no such attributes: {sorted(unknown)}")
    for attribute in attributes:
        types = {type(value) for value in attribute.values or []} or {int, str}
        for value in values_given(attribute, request):
            if type(value) not in types:
                raise RequestError(f"{attribute.name!r} cannot be {value!r}")
    kinds = {type(item) for item in items}
    for name in sorted(EXACT_SETS):
        if request.get(name) is None:
            continue
        if not isinstance(request[name], LISTS):
            raise RequestError(f"{name} must be a list of items, not {request[name]!r}")
        for item in request[name]:
            if type(item) not in kinds:
                raise RequestError(f"{name} cannot hold {item!r}")


def rules_by_item(
    attributes: Sequence[Attribute],
    items: Sequence[Hashable],
    rules: Sequence[Mapping[str, Rule] | None],
) -> dict[Hashable, Mapping[str, Rule]]:
    """The rules of every item, from one dict per row of the catalog.

    Raises:
        CatalogError: not one dict per row, rules that the attributes do not allow, or two rows that
            disagree about one item.

    >>> age = Attribute("age", values=[18, 25])
    >>> rules_by_item([age], ["a", "b", "a"], [{}, {"age": {"from": 20}}, {"age": None}])
    {'a': {}, 'b': {'age': {'from': 20}}}
    """
    if len(items) != len(rules):
        raise CatalogError(f"{len(rules)} rules for {len(items)} rows")
    found: dict[Hashable, Mapping[str, Rule]] = {}
    for item, said in zip(items, rules, strict=True):
        mine = said or {}
        check_rules(attributes, mine)
        first = found.setdefault(item, mine)
        if any(meaning(a, first.get(a.name)) != meaning(a, mine.get(a.name)) for a in attributes):
            raise CatalogError(f"two rows of item {item!r} give it different rules")
    return found
