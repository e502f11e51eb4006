"""What a compiled kernel says of itself: NVIDIA's notes in the ELF file that NVRTC makes."""

from __future__ import annotations

import struct

_LEAST_STACK = 0x12  # EIATTR_MIN_STACK_SIZE
_WITH_A_SIZE = 4  # EIFMT_SVAL: the note's length follows


def stack_bytes(code: bytes) -> dict[str, int]:
    """Bytes of local memory that a thread of each kernel has, by the kernel's C++ symbol.

    Registers that do not suffice are spilled there, and structures that are handed over by
    reference live there.
    """
    (begin,) = struct.unpack_from("<Q", code, 0x28)
    size, count, names = struct.unpack_from("<HHH", code, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", code, begin + i * size) for i in range(count)]

    def text(table: int, place: int) -> str:
        start = sections[table][4] + place
        return code[start : code.index(b"\0", start)].decode()

    found = {}
    for name, _, _, _, at, length, symbols, *_ in sections:
        if text(names, name) != ".nv.info":
            continue
        end = at + length
        while at < end:
            form, kind, value = struct.unpack_from("<BBH", code, at)
            at += 4
            if form != _WITH_A_SIZE:
                continue
            if kind == _LEAST_STACK:
                number, stack = struct.unpack_from("<II", code, at)
                (place,) = struct.unpack_from("<I", code, sections[symbols][4] + number * 24)
                found[text(sections[symbols][6], place)] = stack
            at += value
    return found
