"""Records: what a run of the suite on a real device found, kept in the repository.

Code for a GPU cannot run where there is none. A run on a real one writes a record
(``beamsieve conformance triton --device cuda --record conformance/records/NAME.json``): device,
versions, counts, and a SHA-256 of each kernel source. :func:`check_records` then fails wherever a
kernel no longer matches what was tested, or was never tested, so no kernel changes unseen::

    python -m beamsieve_conformance.records conformance/records
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsieve.errors import InputError

if TYPE_CHECKING:
    from beamsieve_conformance.subject import Subject

FORMAT = 1
DISTRIBUTION = "beamsieve"
GROUP = "beamsieve.backends"
LIBRARIES = ("numpy", "torch", "triton", "cupy")


def facts(subject: Subject) -> dict[str, Any]:
    """Device and versions of a run: what its outcome depends on besides the code."""
    versions = {
        "beamsieve": importlib.metadata.version(DISTRIBUTION),
        "python": platform.python_version(),
    }
    for name in LIBRARIES:
        module = sys.modules.get(name)
        if module is not None:
            versions[name] = str(getattr(module, "__version__", "unknown"))
    # A backend that does not name its processor is on one that its device names well enough.
    hardware = subject.backend.device_name or platform.processor() or platform.machine()
    return {"device": subject.device, "hardware": hardware, "versions": versions}


def sha256(path: Path) -> str:
    """Hash of a source file, the same whatever the line ends of the checkout."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def write(
    path: Path,
    subject: Subject,
    counts: Mapping[str, int],
    *,
    capabilities: Mapping[str, Mapping[str, int]],
    not_declared: Sequence[str],
    partial: str,
) -> None:
    """Add this run to the record at ``path``, in place of an earlier one of the same backend.

    Args:
        path: the record, one file per device; made if it is not there.
        subject: the backend that was tested.
        counts: per outcome, the number of tests.
        capabilities: the same per capability.
        not_declared: the capabilities that the backend does not declare.
        partial: how the suite was narrowed; empty for all of it.
    """
    sources = subject.kernel_sources
    package = package_folder(subject.package.partition(".")[0]) if sources else Path()
    run = {
        **facts(subject),
        "counts": {
            name: counts.get(name, 0) for name in ("passed", "failed", "deviates", "not run")
        },
        "capabilities": {name: dict(ended) for name, ended in capabilities.items()},
        "not_declared": list(not_declared),
        "partial": partial,
        "kernels": {name: sha256(package / name) for name in sources},
    }
    before = read(path)["runs"].get(subject.name, {})
    if before.get("kernels") == run["kernels"]:
        # The suite alone has been run again: what compute-sanitizer found in these kernels stands.
        run |= {name: before[name] for name in ("sanitizer", "sanitizer_tests") if name in before}
    add(path, {subject.name: run})


def read(path: Path) -> dict[str, Any]:
    """The record at ``path``; one without runs if there is no such file.

    Raises:
        InputError: what is there is no record.
    """
    if not path.exists():
        return {"format": FORMAT, "runs": {}}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        record = None
    if not isinstance(record, dict) or not isinstance(record.get("runs"), dict):
        raise InputError(f"{path} is no record of a run of the suite; name another file.")
    return record


def add(path: Path, runs: Mapping[str, Any]) -> None:
    """Put runs, by backend, into the record at ``path``, in place of those that it has of them."""
    record = read(path)
    record["runs"] = dict(sorted((record["runs"] | dict(runs)).items()))
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".part")
    aside.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    os.replace(aside, path)


def check_records(
    folder: Path, kernels: Mapping[str, tuple[Path, tuple[str, ...]]] | None = None
) -> list[str]:
    """What is wrong with the records in ``folder``, one sentence each; nothing when all is well.

    Args:
        folder: holds the records, ``<gpu>.json``.
        kernels: per backend, its package's folder and its kernel sources; by default those of
            every backend in this distribution.
    """
    declared = installed_kernels() if kernels is None else kernels
    problems: list[str] = []
    recorded: set[str] = set()
    for path in sorted(folder.glob("*.json")):
        for backend, run in json.loads(path.read_text(encoding="utf-8"))["runs"].items():
            recorded.add(backend)
            problems += [f"{path.name}: {line}" for line in _check_run(backend, run, declared)]
    problems += [
        f"no record in {folder} holds the backend {backend}: run the suite on a GPU with --record"
        for backend, (_, sources) in sorted(declared.items())
        if sources and backend not in recorded
    ]
    return problems


def _check_run(
    backend: str, run: Mapping[str, Any], declared: Mapping[str, tuple[Path, tuple[str, ...]]]
) -> list[str]:
    problems = []
    counts = run["counts"]
    if counts["failed"] or not counts["passed"]:
        problems.append(f"{backend} passed {counts['passed']} tests and failed {counts['failed']}")
    if run["partial"]:
        problems.append(f"{backend} ran only a part of the suite ({run['partial']})")
    problems += [
        f"{backend}: compute-sanitizer's {tool} found {count}"
        for tool, count in run.get("sanitizer", {}).items()
        if count
    ]
    folder, sources = declared.get(backend, (Path(), ()))
    if set(sources) != set(run["kernels"]):
        problems.append(
            f"{backend} has the kernels {sorted(sources)}, but {sorted(run['kernels'])} were tested"
        )
    problems += [
        f"{backend}: {name} has changed since its record; run the suite on that device again"
        for name in sources
        if name in run["kernels"] and sha256(folder / name) != run["kernels"][name]
    ]
    return problems


def package_folder(package: str) -> Path:
    """The folder of an installed package, which is found without being run."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"no package {package}")
    return Path(next(iter(spec.submodule_search_locations)))


def installed_kernels() -> dict[str, tuple[Path, tuple[str, ...]]]:
    """Per backend of this distribution, its package's folder and the kernel sources it declares.

    A backend whose array library is not installed here cannot be imported; then its class is read
    instead.
    """
    found = {}
    for entry in importlib.metadata.distribution(DISTRIBUTION).entry_points.select(group=GROUP):
        top, _, rest = entry.module.partition(".")
        folder = package_folder(top)
        try:
            sources = tuple(entry.load().kernel_sources)
        except ImportError:
            home = folder.joinpath(*rest.split(".")) if rest else folder
            files = sorted(home.rglob("*.py")) if home.is_dir() else [home.with_suffix(".py")]
            sources = read_kernel_sources(files, entry.attr)
        found[entry.name] = (folder, sources)
    return found


def read_kernel_sources(files: Sequence[Path], class_name: str) -> tuple[str, ...]:
    """The value of ``kernel_sources`` in the class of that name, without importing it.

    It must be a plain tuple of texts; empty where the class sets none.

    Raises:
        LookupError: no such class in these files.
    """
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                for line in node.body:
                    targets = (
                        line.targets
                        if isinstance(line, ast.Assign)
                        else [line.target]
                        if isinstance(line, ast.AnnAssign)
                        else []
                    )
                    if any(isinstance(t, ast.Name) and t.id == "kernel_sources" for t in targets):
                        return tuple(ast.literal_eval(line.value))  # type: ignore[attr-defined]
                return ()
    raise LookupError(f"no class {class_name} in {[str(file) for file in files]}")


def main(arguments: list[str]) -> int:
    """Check the records of a folder; 0 when all is well."""
    if len(arguments) != 1:
        print("usage: python -m beamsieve_conformance.records FOLDER", file=sys.stderr)
        return 2
    problems = check_records(Path(arguments[0]))
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        kernels = sum(len(sources) for _, sources in installed_kernels().values())
        print(f"records hold the present state of {kernels} kernel sources")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
