"""The catalogs of the matrix: made ones, real ones, and the user's own index.

=====================  ===========================================================================
workload               what it is
=====================  ===========================================================================
``Z1``                 a named catalog of :mod:`beamsieve_bench.catalogs`
``skewed:NxVxL``       N semantic IDs of L levels with V tokens each, popular tokens and rare ones
``uniform:NxVxL``      drawn uniformly: no hub rows, which flatters whoever pads to the widest
``hub:NxVxL``          uniform, but one prefix of L - 2 tokens may be followed by every token
``real:NAME``          a ``NAME.index.json`` anywhere below ``--data``
a path                 an index, or a catalog that ``Catalog.read`` reads
=====================  ===========================================================================

Made catalogs up to a million semantic IDs have the bit attribute ``share``, so that a request can
ask for a tenth or a hundredth of the items.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import beamsieve as bs
from beamsieve.errors import InputError
from beamsieve.index.recognised import is_index_file
from beamsieve_bench.catalogs import WORKLOADS, Workload, skewed_sids
from beamsieve_conformance.records import package_folder

ENVIRONMENT = "BEAMSIEVE_BENCH_DATA"
SHARES = (1.0, 0.1, 0.01)
MOST_WITH_SHARES = 1_000_000
_MADE = re.compile(r"(skewed|uniform|hub):(\d{1,18})x(\d{1,18})x(\d{1,18})")


@dataclass(frozen=True)
class Source:
    """A catalog, ready to be measured.

    Attributes:
        name: the workload's name.
        index: its index.
        sids: int32 [N, L], distinct and sorted, -1 behind the end of a shorter one; what baselines
            build their own tables of.
        shares: which parts of the items a request can ask for.
    """

    name: str
    index: bs.Index
    sids: NDArray[np.int32]
    shares: tuple[float, ...] = ()

    @property
    def codebooks(self) -> tuple[int, ...]:
        """V_1 … V_L."""
        return tuple(self.index.codebooks)

    @property
    def one_length(self) -> bool:
        """Whether all semantic IDs have L tokens, which the baselines need."""
        return not self.index.end_token and bool((self.sids[:, -1] >= 0).all())

    def requests(self, share: float | None, batch: int) -> list[dict[str, Any]] | None:
        """A batch of requests that lets this part of the items through."""
        return None if share is None else [{"share": _label(share)}] * batch


def read_source(workload: str, data: Path | None) -> Source:
    """Make or read the catalog that ``workload`` names.

    Raises:
        InputError: there is no such workload, or its numbers do not fit.
        BeamsieveError: its file cannot be read.
    """
    named = what_is_named(workload, data)
    if isinstance(named, tuple):
        return _made(workload, *named)
    try:
        ready = is_index_file(named)
    except OSError as error:
        raise InputError(f"{named} cannot be read: {error.strerror or error}.") from error
    index = bs.Index.load(named) if ready else bs.Index.build(bs.Catalog.read(named))
    sids = index.sid_of_leaf(np.arange(index.leaf_count)).astype(np.int32)
    return Source(workload, index, sids)


def what_is_named(workload: str, data: Path | None) -> tuple[str, Workload] | Path:
    """The kind and size of a made catalog, or the file of another one.

    Raises:
        InputError: there is no such workload, or its numbers do not fit.
    """
    if workload in WORKLOADS:
        return "skewed", WORKLOADS[workload]
    made = _MADE.fullmatch(workload)
    if made:
        kind, *numbers = made.groups()
        size = Workload(*map(int, numbers))
        if size.length < 2 or size.vocabulary < 2 or size.items < 1:
            raise InputError(
                f"{workload}: at least 1 semantic ID of 2 levels of 2 tokens is needed."
            )
        why = size.too_large()
        if why:
            raise InputError(f"{workload}: {why}.")
        return kind, size
    path = real_catalogs(data).get(workload) if workload.startswith("real:") else Path(workload)
    if path is None or not os.path.exists(path):  # False for what cannot be a name, too
        known = ", ".join([*WORKLOADS, *real_catalogs(data)])
        raise InputError(
            f"There is no workload {workload!r}, nor a file: give one of {known}, skewed:NxVxL, "
            f"uniform:NxVxL, hub:NxVxL, or the path of an index or a catalog (real ones are looked "
            f"for below --data, or {ENVIRONMENT})."
        )
    return path


def real_catalogs(data: Path | None) -> dict[str, Path]:
    """``real:NAME`` → file, for every ``NAME.index.json`` below the folder; none without one."""
    folder = data or (Path(os.environ[ENVIRONMENT]) if os.environ.get(ENVIRONMENT) else None)
    if folder is None or not folder.is_dir():
        return {}
    files = sorted(folder.rglob("*.index.json"))
    return {f"real:{path.name.removesuffix('.index.json')}": path for path in files}


def _made(name: str, kind: str, size: Workload) -> Source:
    sids = skewed_sids(size) if kind == "skewed" else _uniform_sids(size)
    if kind == "hub":
        sids = _with_hub(sids, size.vocabulary)
    shared = len(sids) <= MOST_WITH_SHARES
    catalog = bs.Catalog.from_arrays(
        sids,
        codebooks=[size.vocabulary] * size.length,
        attributes=[bs.Attribute("share", [_label(share) for share in SHARES])] if shared else (),
        rules=_rules(len(sids)) if shared else None,
        source=name,
    )
    return Source(name, bs.Index.build(catalog), sids, SHARES if shared else ())


def _uniform_sids(size: Workload, seed: int = 0) -> NDArray[np.int32]:
    draw = np.random.default_rng(seed)
    wanted = min(size.items, size.vocabulary**size.length)
    numbers = np.unique(draw.integers(0, size.vocabulary**size.length, int(wanted * 1.2) + 16))
    if len(numbers) > wanted:
        numbers = np.sort(draw.choice(numbers, wanted, replace=False))
    place = size.vocabulary ** np.arange(size.length - 1, -1, -1, dtype=np.int64)
    return (numbers[:, None] // place % size.vocabulary).astype(np.int32)


def _with_hub(sids: NDArray[np.int32], vocabulary: int) -> NDArray[np.int32]:
    """One prefix of L - 2 tokens, in the middle of the catalog, gets every token for a child."""
    hub = np.repeat(sids[len(sids) // 2][None], vocabulary, 0)
    hub[:, -2] = np.arange(vocabulary)
    return np.unique(np.concatenate([sids, hub]), axis=0)


def _label(share: float) -> str:
    return f"{share:g}"


def _rules(items: int, seed: int = 1) -> list[dict[str, Any]]:
    """Every item accepts each share with that probability; few dicts, as rules repeat."""
    lot = np.random.default_rng(seed).random(items)
    kinds: list[dict[str, Any]] = [
        {"share": {"accepts": [_label(share) for share in SHARES[: n + 1]]}}
        for n in range(len(SHARES))
    ]
    number = sum((lot < share).astype(np.int64) for share in SHARES[1:])
    return [kinds[n] for n in np.asarray(number).tolist()]


class Preparation:
    """All catalogs in turn, in a ``with`` block.

    With more than one process they are made in processes of their own from the beginning of the
    block on, and read from files here.

    Args:
        workloads: what to make.
        data: the folder of real catalogs.
        processes: how many at once.
        kept: a folder of :func:`state_folder`, where they stay and are found again.
    """

    def __init__(
        self,
        workloads: Sequence[str],
        data: Path | None,
        processes: int,
        kept: Path | None = None,
    ) -> None:
        self.workloads, self.data, self.kept = workloads, data, kept
        self.processes = min(processes, len(workloads))

    def __enter__(self) -> Iterator[Source]:
        """Begin.

        Raises:
            BeamsieveError: in the iteration, as ``read_source``.
        """
        self._ended = ExitStack()
        if self.processes == 1 and self.kept is None:
            return (read_source(workload, self.data) for workload in self.workloads)
        folder = self.kept
        if folder is None:
            folder = Path(self._ended.enter_context(tempfile.TemporaryDirectory()))
        context = multiprocessing.get_context("spawn")
        pool = self._ended.enter_context(context.Pool(self.processes))
        jobs = [(name, self.data, folder / _file_name(name)) for name in self.workloads]
        return map(_read_saved, self.workloads, pool.imap(_saved, jobs))

    def __exit__(self, *failure: object) -> None:
        """Remove what was written, and end what is still being made."""
        self._ended.close()


def state_folder(folder: Path) -> Path:
    """A folder below this one for the code as it is now: other code finds nothing of it."""
    digest = hashlib.sha256()
    for name in ("beamsieve", "beamsieve_spec", "beamsieve_backends", "beamsieve_conformance",
                 "beamsieve_bench"):  # fmt: skip
        home = package_folder(name)
        for path in sorted(home.rglob("*")):
            if path.suffix in (".py", ".cu", ".cuh"):
                digest.update(f"{path.relative_to(home)}\0".encode() + path.read_bytes())
    made = folder / digest.hexdigest()[:16]
    made.mkdir(parents=True, exist_ok=True)
    return made


def _file_name(workload: str) -> str:
    return hashlib.sha256(workload.encode()).hexdigest()[:16]


def _read_saved(workload: str, saved: tuple[Path, tuple[float, ...]]) -> Source:
    path, shares = saved
    index = bs.Index.load(path.with_suffix(".safetensors"), verify=False)
    return Source(workload, index, np.load(path.with_suffix(".npy")), shares)


def _saved(job: tuple[str, Path | None, Path]) -> tuple[Path, tuple[float, ...]]:
    workload, data, path = job
    finished = path.with_suffix(".json")
    if not finished.is_file():
        source = read_source(workload, data)
        source.index.save(path.with_suffix(".safetensors"))
        aside = path.with_suffix(f".{os.getpid()}.npy")  # others may be making the same
        np.save(aside, source.sids)
        aside.replace(path.with_suffix(".npy"))
        finished.write_text(json.dumps(source.shares), "utf-8")
    return path, tuple(json.loads(finished.read_text("utf-8")))
