"""What the wide-beam decoder was aimed at on an H200, beside what its runs measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DECODE = (12.3, 12.6)
TARGETED = (12.9, 13.3)
CONTEXT, OWN = 0.057, 0.19
MFU = 0.57


def aims_table(folder: Path) -> str:
    """Markdown, from the JSON of ``wide_kernels``, ``wide_ladder`` and ``wide_engine``."""
    lines = ["| what | aim | measured |", "| --- | --- | --- |"]
    parts = _read(folder, "wide_kernels.json")
    if parts:
        kind = min(parts["context_ms"], key=lambda name: _known(parts["context_ms"][name]))
        context = parts["context_ms"][kind]
        lines.append(
            f"| cross-attention, one layer | {CONTEXT} ms | {context:.3f} ms, {kind}: "
            f"{_said(context <= CONTEXT)} |"
        )
        last = list(parts["own_ms"]["paged"])[-1]
        paged, placed = (parts["own_ms"][name][last] for name in ("paged", "in place"))
        lines.append(
            f"| self-attention at the fourth token, one layer | {OWN} ms | {paged:.3f} ms paged, "
            f"{placed:.3f} ms in place: {_said(max(paged, placed) <= OWN)} |"
        )
    for row in _rows(folder, "wide_ladder.json"):
        if row["name"] == "+ by two tokens":
            lines += [_decode(*one, DECODE) for one in _queues(row, "decode, no filter")]
    for row in _rows(folder, "wide_engine.json"):
        if row["name"] == "Bloom targeting" and row["products"] == "own":
            what = f"decode, filter and full targeting, {row['backend']}"
            for times, named in _queues(row, what):
                lines.append(_decode(times, named, TARGETED))
                met = _said(times["mfu"] >= MFU)
                lines.append(f"| MFU of it | {MFU:.0%} | {times['mfu']:.1%}: {met} |")
    return "\n".join(lines)


def _queues(row: dict[str, Any], what: str) -> list[tuple[dict[str, Any], str]]:
    """A row's times, and what they are of: from a cool chip, and settled where that was timed."""
    later = row.get("settled")
    return [(row, f"{what}, from a cool chip")] + ([(later, f"{what}, settled")] if later else [])


def _decode(row: dict[str, Any], what: str, aim: tuple[float, float]) -> str:
    p50, p99 = row["p50"], row["p99"]
    said = f"P50 {_said(p50 <= aim[0])}, P99 {_said(p99 <= aim[1])}"
    return f"| {what} | {aim[0]} / {aim[1]} ms | {p50:.2f} / {p99:.2f} ms: {said} |"


def _said(met: bool) -> str:
    return "met" if met else "missed"


def _known(value: float) -> float:
    return float("inf") if value != value else value


def _read(folder: Path, file: str) -> Any:
    path = folder / file
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _rows(folder: Path, file: str) -> list[dict[str, Any]]:
    found = _read(folder, file)
    return [row for row in found["rows"] if "failed" not in row] if found else []
