"""XXH3, the 64-bit hash behind the Bloom filters.

The filters of :mod:`beamsieve_spec.targeting_bits` use XXH3's 64-bit hash with seed 0. Any
implementation of it will do (in Python, ``xxhash.xxh3_64_intdigest(data)``). This one is written
from the public description of the algorithm, so that this specification runs by itself; its values
are checked against the xxhash library at every length that takes another path. Nothing in it is
ours to decide: who trusts the library may turn the page.

All arithmetic is modulo 2**64; all reads are little-endian.
"""

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f"
    "cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c"
    "3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364"
    "eac5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e"
    "2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
"""192 bytes that the algorithm fixes."""

P32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
P64 = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)
MASK = 2**64 - 1


def xxh3_64(data: bytes) -> int:
    """The 64-bit XXH3 of ``data``, seed 0.

    >>> f"{xxh3_64(b''):016x}", f"{xxh3_64(b'sBoston'):016x}"
    ('2d06800538d394c2', '068432e7cb461d68')
    """
    if len(data) <= 16:
        return up_to_16(data)
    if len(data) <= 240:
        return up_to_240(data)
    return longer(data)


def up_to_16(data: bytes) -> int:
    """Four cases: 0, 1 to 3, 4 to 8 and 9 to 16 bytes."""
    n = len(data)
    if n > 8:
        low = read64(data, 0) ^ read64(SECRET, 24) ^ read64(SECRET, 32)
        high = read64(data, n - 8) ^ read64(SECRET, 40) ^ read64(SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return avalanche(n + swapped + high + folded(low, high))
    if n > 3:
        both = read32(data, n - 4) + (read32(data, 0) << 32)
        h = both ^ read64(SECRET, 8) ^ read64(SECRET, 16)
        h ^= rotated(h, 49) ^ rotated(h, 24)
        h = h * 0x9FB21C651E98DF25 & MASK
        h ^= (h >> 35) + n
        h = h * 0x9FB21C651E98DF25 & MASK
        return h ^ (h >> 28)
    if n > 0:
        packed = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return avalanche_64(packed ^ read32(SECRET, 0) ^ read32(SECRET, 4))
    return avalanche_64(read64(SECRET, 56) ^ read64(SECRET, 64))


def up_to_240(data: bytes) -> int:
    """17 to 240 bytes: sums of mixed 16-byte pieces, up to 128 bytes from both ends inwards."""
    n = len(data)
    total = n * P64[0]
    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            total += mixed(data, 16 * i, 32 * i) + mixed(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(total)
    for i in range(8):
        total += mixed(data, 16 * i, 16 * i)
    total = avalanche(total)
    for i in range(8, n // 16):
        total += mixed(data, 16 * i, 16 * (i - 8) + 3)
    return avalanche(total + mixed(data, n - 16, 136 - 17))


def longer(data: bytes) -> int:
    """More than 240 bytes: eight sums over stripes of 64 bytes, stirred after each 16 stripes."""
    sums = [P32[2], P64[0], P64[1], P64[2], P64[3], P32[1], P64[4], P32[0]]
    stripes = (len(data) - 1) // 64
    for stripe in range(stripes):
        accumulate(sums, data, 64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:
            for i in range(8):
                stirred = sums[i] ^ (sums[i] >> 47) ^ read64(SECRET, 128 + 8 * i)
                sums[i] = stirred * P32[0] & MASK
    accumulate(sums, data, len(data) - 64, 192 - 64 - 7)
    total = len(data) * P64[0]
    for i in range(0, 8, 2):
        low = sums[i] ^ read64(SECRET, 11 + 8 * i)
        high = sums[i + 1] ^ read64(SECRET, 19 + 8 * i)
        total += folded(low, high)
    return avalanche(total)


def accumulate(sums: list[int], data: bytes, at: int, secret: int) -> None:
    """Add one stripe to the eight sums."""
    for i in range(8):
        value = read64(data, at + 8 * i)
        key = value ^ read64(SECRET, secret + 8 * i)
        sums[i ^ 1] = (sums[i ^ 1] + value) & MASK
        sums[i] = (sums[i] + (key & 0xFFFFFFFF) * (key >> 32)) & MASK


def mixed(data: bytes, at: int, secret: int) -> int:
    """Sixteen bytes of data against sixteen of the secret."""
    low = read64(data, at) ^ read64(SECRET, secret)
    return folded(low, read64(data, at + 8) ^ read64(SECRET, secret + 8))


def folded(a: int, b: int) -> int:
    """The two halves of a 128-bit product, one over the other."""
    return (a * b & MASK) ^ (a * b >> 64)


def avalanche(h: int) -> int:
    """XXH3's final mix."""
    h &= MASK
    h = (h ^ (h >> 37)) * 0x165667919E3779F9 & MASK
    return h ^ (h >> 32)


def avalanche_64(h: int) -> int:
    """XXH64's final mix, which XXH3 uses for the shortest inputs."""
    h = (h ^ (h >> 33)) * P64[1] & MASK
    h = (h ^ (h >> 29)) * P64[2] & MASK
    return h ^ (h >> 32)


def rotated(h: int, bits: int) -> int:
    """``h`` rotated to the left."""
    return (h << bits | h >> (64 - bits)) & MASK


def read32(data: bytes, at: int) -> int:
    """Four bytes."""
    return int.from_bytes(data[at : at + 4], "little")


def read64(data: bytes, at: int) -> int:
    """Eight bytes."""
    return int.from_bytes(data[at : at + 8], "little")
