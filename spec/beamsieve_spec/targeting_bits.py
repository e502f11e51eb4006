"""Rules and requests as bits.

A decoder cannot ask every item below a prefix whether it is eligible. It asks one *row* of bits
instead, the union of the rows of those items. This page fixes each bit of a row, so that another
program can build the same one.

**Segments.** A row has one segment for all bit attributes together, and one for each Bloom
attribute. A segment is a whole number of 64-bit words. Bit i of a segment is bit ``i % 64`` of word
``i // 64``, where bit 0 is the least significant. Here a segment is a Python integer, whose bit i
has the weight ``2**i``; :func:`words` cuts it up.

**The segment of the bit attributes.** In the order of declaration, without gaps, an attribute with
n values has n + 1 bits: first the *reserved* bit, then one bit for each value, in the order of its
list. The segment is filled up to whole words with zeros; without bit attributes it has no words.

**The segment of a Bloom attribute** has as many bits as were declared, w. Bit 0 is the reserved
bit. A value sets four of the bits 1 … w - 1 (fewer where two coincide), its *signature*: let h be
XXH3-64 with seed 0 (:mod:`beamsieve_spec.targeting_hash`) of the value in its canonical form, and
c_0 … c_3 the four 16-bit parts of h, c_0 the least significant; the bits are

    1 + c_i mod (w - 1).

The canonical form of a string is the letter ``s`` and then its UTF-8 bytes, not normalised; that of
an integer is the letter ``i`` and then its decimal digits, with a ``-`` in front when negative.

**An item's row**, attribute by attribute:

====================  ================================  ========================================
the item's rule       its bits of a bit attribute       its segment of a Bloom attribute
====================  ================================  ========================================
no rule               all, the reserved bit included    all w bits, the reserved bit included
without ``accepts``   the values it accepts             all w bits but the reserved one
with ``accepts``      the values it accepts             the signatures of the values it accepts
====================  ================================  ========================================

So the reserved bit says "no rule". A Bloom filter cannot say "all but these": a filter of refused
values would now and then refuse one that nobody refused, and an eligible item would be lost. A
refusal on a Bloom attribute therefore leaves all bits but the reserved one, and counts only when
the results are checked exactly.

**A request's bits.** For the bit attributes, one segment that a row must contain: of each attribute
the bits of all values given, where a value that was not declared is the reserved bit; the reserved
bit when none is given. For each Bloom attribute, a list of signatures, one for each value given, of
which a row must contain at least one; when none is given, the reserved bit alone is the list's only
entry. The request None asks nothing: no bits, and no list.

The example of GRACE, section 3.2. Countries US, CA, UK and ages 18-24, 25-34 take the bits

    0 no rule, 1 US, 2 CA, 3 UK; 4 no rule, 5 18-24, 6 25-34

One item wants the US and 18-24, another Canada and 25-34:

>>> toy = [Attribute("country", ["US", "CA", "UK"]), Attribute("age", ["18-24", "25-34"])]
>>> one = item_row(toy, {"country": {"accepts": ["US"]}, "age": {"accepts": ["18-24"]}})
>>> two = item_row(toy, {"country": {"accepts": ["CA"]}, "age": {"accepts": ["25-34"]}})
>>> show(one[0], 7), show(two[0], 7), show(union([one, two])[0], 7)
('0100010', '0010001', '0110011')

A viewer from the US, aged 30, asks for bits 1 and 6. Neither item has both, their union has: it
lets through what no item below accepts, which is why items are checked again in the end. It never
stops what some item accepts:

>>> asks = asked(toy, {"country": "US", "age": "25-34"})
>>> show(asks.bits, 7)
'0100001'
>>> passes(one, asks), passes(two, asks), passes(union([one, two]), asks)
(False, False, True)

Nothing is known about the age of the next viewer, and only an item without a rule on it will do:

>>> anyone = item_row(toy, {"country": {"accepts": ["US"]}})
>>> asks = asked(toy, {"country": "US"})
>>> show(anyone[0], 7), show(asks.bits, 7), passes(anyone, asks), passes(one, asks)
('0100111', '0100100', True, False)
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

from beamsieve_spec.targeting_hash import xxh3_64
from beamsieve_spec.targeting_rules import (
    Attribute,
    Request,
    Rule,
    Value,
    accepts,
    has_rule,
    values_given,
)

Row = tuple[int, ...]
"""The segment of the bit attributes, then one segment per Bloom attribute, in declared order."""

RESERVED = 1
"""The reserved bit, at the start of an attribute's bits."""


@dataclass(frozen=True)
class Asked:
    """What a request asks of a row.

    Attributes:
        bits: the bits of the first segment that the row must contain, all of them.
        blooms: per Bloom attribute the signatures of which the row must contain at least one; an
            empty list asks nothing.
    """

    bits: int
    blooms: list[list[int]]


def bit_offsets(attributes: Sequence[Attribute]) -> dict[str, int]:
    """Where each bit attribute's bits begin in the first segment: its reserved bit.

    >>> bit_offsets([Attribute("a", [7, 8]), Attribute("b", bloom=64), Attribute("c", ["x"])])
    {'a': 0, 'c': 3}
    """
    offsets, end = {}, 0
    for attribute in attributes:
        if attribute.values is not None:
            offsets[attribute.name] = end
            end += len(attribute.values) + 1
    return offsets


def row_bits(attributes: Sequence[Attribute]) -> int:
    """How many bits of a row carry meaning, those that fill the first segment up left out.

    >>> row_bits([Attribute("a", [7, 8]), Attribute("b", bloom=64), Attribute("c", ["x"])])
    69
    """
    return sum(a.bloom if a.bloom is not None else len(a.values or []) + 1 for a in attributes)


def signature(value: Value, width: int) -> int:
    """The bits that a value sets in a Bloom filter of ``width`` bits.

    >>> f"{xxh3_64(b'sBoston'):016x}"
    '068432e7cb461d68'
    >>> [1 + part % 255 for part in (0x1D68, 0xCB46, 0x32E7, 0x0684)]
    [134, 19, 27, 139]
    >>> sorted(bit for bit in range(256) if signature("Boston", 256) >> bit & 1)
    [19, 27, 134, 139]
    """
    form = f"s{value}" if isinstance(value, str) else f"i{value}"
    h = xxh3_64(form.encode("utf-8"))
    bits = 0
    for part in range(4):
        bits |= 1 << 1 + (h >> 16 * part & 0xFFFF) % (width - 1)
    return bits


def item_row(attributes: Sequence[Attribute], rules: Mapping[str, Rule]) -> Row:
    """The row of an item with these rules, one per attribute."""
    offsets = bit_offsets(attributes)
    bits, blooms = 0, []
    for attribute in attributes:
        rule = rules.get(attribute.name) or {}
        if attribute.bloom is not None:
            blooms.append(bloom_segment(attribute, rule, attribute.bloom))
            continue
        mine = 0 if has_rule(rule) else RESERVED
        for place, value in enumerate(attribute.values or [], start=1):
            if accepts(attribute, rule, value):
                mine |= 1 << place
        bits |= mine << offsets[attribute.name]
    return (bits, *blooms)


def bloom_segment(attribute: Attribute, rule: Mapping[str, Any], width: int) -> int:
    """An item's segment of one Bloom attribute."""
    everything = (1 << width) - 1
    if not has_rule(rule):
        return everything
    if "accepts" not in rule:
        return everything - RESERVED
    accepted = [value for value in rule["accepts"] if accepts(attribute, rule, value)]
    return reduce(lambda bits, value: bits | signature(value, width), accepted, 0)


def asked(attributes: Sequence[Attribute], request: Request) -> Asked:
    """What a request asks of a row."""
    offsets = bit_offsets(attributes)
    blooms: list[list[int]] = [[] for attribute in attributes if attribute.bloom is not None]
    if request is None:
        return Asked(0, blooms)
    bits, blooms = 0, []
    for attribute in attributes:
        given = values_given(attribute, request)
        if attribute.bloom is not None:
            blooms.append([signature(value, attribute.bloom) for value in given] or [RESERVED])
            continue
        values = list(attribute.values or [])
        places = [values.index(value) + 1 if value in values else 0 for value in given] or [0]
        for place in places:
            bits |= 1 << offsets[attribute.name] + place
    return Asked(bits, blooms)


def union(rows: Iterable[Row]) -> Row:
    """The row of a subtree: every bit that some item below has."""
    return reduce(lambda a, b: tuple(x | y for x, y in zip(a, b, strict=True)), rows)


def passes(row: Row, asks: Asked) -> bool:
    """Whether a row has all bits asked for, and one of the signatures of each Bloom attribute."""
    return row[0] & asks.bits == asks.bits and all(
        not signatures or any(segment & s == s for s in signatures)
        for segment, signatures in zip(row[1:], asks.blooms, strict=True)
    )


def words(segment: int, bits: int) -> list[int]:
    """A segment of at least ``bits`` bits as 64-bit words, the least significant bits first.

    >>> words(1 << 64 | 5, bits=65)
    [5, 1]
    """
    return [segment >> start & (2**64 - 1) for start in range(0, bits, 64)]


def show(segment: int, bits: int) -> str:
    """The first bits of a segment, bit 0 on the left."""
    return "".join(str(segment >> bit & 1) for bit in range(bits))
