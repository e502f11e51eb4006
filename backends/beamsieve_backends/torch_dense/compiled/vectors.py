"""Two things that Numba has no word for: dot products held in vector registers, and a float's bits.

Numba's functions are compiled through LLVM, whose vectors of 16 numbers fit any processor: where
its registers are shorter LLVM takes several for one.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from llvmlite.binding import get_default_triple, get_host_cpu_features
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

DOTS = 8
"""So many dot products are computed at once: as many sums hide the latency of an addition."""
LANES = 16

_FLOAT, _INT32, _INT64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_VECTOR = ir.VectorType(_FLOAT, LANES)


def _dots(
    typing: Any,
    head: Any,
    hidden: Any,
    at: Any,
    size: Any,
    tokens: Any,
    place: Any,
    count: Any,
    out: Any,
    slot: Any,
) -> Any:
    """``out[slot + i] = hidden[at : at + size] · head[tokens[place + i]]`` for i below ``DOTS``.

    Only the first ``size - size % LANES`` terms are taken. From ``count`` (1 to ``DOTS``) on, the
    last real token stands in for the missing ones: all eight places of ``out`` are written. Each
    lane adds its terms in order, and then halves of the lanes are added until one number is left,
    so that a product's bits follow from its two rows alone, wherever it stands among the eight.

    Args:
        typing: Numba's own.
        head: float32 [V * size], C-contiguous, as are the other arrays.
        hidden: float32 [N * size].
        at: int64.
        size: int64.
        tokens: int16 or int32.
        place: int64.
        count: int64.
        out: float32.
        slot: int64.
    """
    signature = types.void(head, hidden, at, size, tokens, place, count, out, slot)
    return signature, _emit_dots


dots: Any = intrinsic(_dots)


def _emit_dots(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    def data(number: int) -> Any:
        kind = signature.args[number]
        return context.make_array(kind)(context, builder, args[number]).data

    head, state, tokens, out = data(0), data(1), data(4), data(7)
    at, size, place, count, slot = args[2], args[3], args[5], args[6], args[8]
    state = builder.gep(state, [at])
    last = builder.sub(count, _INT64(1))
    rows = []
    for number in range(DOTS):
        wanted = _INT64(number)
        taken = builder.select(builder.icmp_signed("<", wanted, count), wanted, last)
        token = builder.load(builder.gep(tokens, [builder.add(place, taken)]))
        rows.append(builder.gep(head, [builder.mul(builder.sext(token, _INT64), size)]))

    whole = builder.and_(size, _INT64(-LANES))
    zero = ir.Constant(_VECTOR, [0.0] * LANES)
    entry = builder.block
    loop = builder.function.append_basic_block("dots.loop")
    done = builder.function.append_basic_block("dots.done")
    builder.cbranch(builder.icmp_signed(">", whole, _INT64(0)), loop, done)

    builder.position_at_end(loop)
    term = builder.phi(_INT64)
    term.add_incoming(_INT64(0), entry)
    sums = [builder.phi(_VECTOR) for _ in rows]
    states = _load(builder, state, term)
    added = []
    for row, sum_ in zip(rows, sums, strict=True):
        added.append(_multiplied_and_added(builder, states, _load(builder, row, term), sum_))
        sum_.add_incoming(zero, entry)
        sum_.add_incoming(added[-1], loop)
    following = builder.add(term, _INT64(LANES))
    term.add_incoming(following, loop)
    builder.cbranch(builder.icmp_signed("<", following, whole), loop, done)

    builder.position_at_end(done)
    totals = []
    for total in added:
        held = builder.phi(_VECTOR)
        held.add_incoming(zero, entry)
        held.add_incoming(total, loop)
        totals.append(held)
    found = _summed(builder, totals)
    target = builder.bitcast(builder.gep(out, [slot]), found.type.as_pointer())
    builder.store(found, target, align=4)
    return context.get_dummy_value()


def _multiplied_and_added(builder: Any, first: Any, second: Any, third: Any) -> Any:
    """``first * second + third``: rounded once where the processor can do that, else twice.

    It is said which. Left to the compiler ("contract") it may be one here and the other there, and
    then a product's bits depend on where it stands.
    """
    if not _fuses():
        return builder.fadd(builder.fmul(first, second), third)
    kind = ir.FunctionType(_VECTOR, [_VECTOR] * 3)
    fused = cgutils.get_or_insert_function(builder.module, kind, f"llvm.fma.v{LANES}f32")
    return builder.call(fused, [first, second, third])


@cache
def _fuses() -> bool:
    """Whether the processor multiplies and adds in one; in software it takes a hundred times as
    long."""
    arm = get_default_triple().startswith(("aarch64", "arm64"))  # which always does
    return arm or bool(get_host_cpu_features().get("fma"))


def _load(builder: Any, row: Any, term: Any) -> Any:
    pointer = builder.bitcast(builder.gep(row, [term]), _VECTOR.as_pointer())
    return builder.load(pointer, align=4)


def _summed(builder: Any, vectors: list[Any]) -> Any:
    """The sum of each vector's lanes, side by side.

    Every addition puts the front halves of what is left of each sum on the back halves. While there
    are several vectors, pairs of them become one, so that no lane is idle.
    """
    left = LANES  # numbers that are left of each sum
    while left > 1:
        alone = len(vectors) == 1
        seconds = vectors if alone else vectors[1::2]
        joined = []
        for first, second in zip(vectors[::2], seconds, strict=True):
            lanes = first.type.count * (1 if alone else 2)
            fronts = [lane for lane in range(lanes) if lane % left < left // 2]
            backs = [lane + left // 2 for lane in fronts]
            halves = (_shuffled(builder, first, second, lanes) for lanes in (fronts, backs))
            joined.append(builder.fadd(*halves))
        vectors, left = joined, left // 2
    return vectors[0]


def _shuffled(builder: Any, first: Any, second: Any, lanes: list[int]) -> Any:
    mask = ir.Constant(ir.VectorType(_INT32, len(lanes)), lanes)
    return builder.shuffle_vector(first, second, mask)


def _bits_of(typing: Any, value: Any) -> Any:
    """The bits of a float32, as an int32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _INT32)

    return types.int32(types.float32), emit


bits_of: Any = intrinsic(_bits_of)


def _float_of(typing: Any, bits: Any) -> Any:
    """The float32 with the bits of an int32."""

    def emit(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.bitcast(args[0], _FLOAT)

    return types.float32(types.int32), emit


float_of: Any = intrinsic(_float_of)
