"""Where commands write: never over what they read, and complete or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from beamsieve.aside import written_aside


def check_folder(path: Path, option: str = "--output") -> None:
    """Refuse an output whose folder cannot take it: before the work, not after it.

    Raises:
        typer.BadParameter: the folder does not exist, or may not be written to.
    """
    if not path.parent.is_dir():
        raise typer.BadParameter(f"the folder {path.parent} does not exist", param_hint=option)
    folder = Path(os.path.realpath(path)).parent  # a link goes on pointing to the file
    if folder.is_dir() and not _is_special(path) and not os.access(folder, os.W_OK):
        raise typer.BadParameter(
            f"nothing can be written to the folder {folder}", param_hint=option
        )


def check_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Path | None]) -> None:
    """Refuse an output that would replace an input, or another output; each by what it is called.

    Raises:
        typer.BadParameter: the folder of an output does not exist, or two names are of one file.
    """
    taken = {name: path for name, path in inputs.items() if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        check_folder(path, option)
        for name, other in taken.items():
            if _one_file(path, other) or _holds(other, path):
                raise typer.BadParameter(
                    f"{path} is {name} as well; give another file", param_hint=option
                )
        taken[option] = path


def check_regular(path: Path) -> None:
    """Refuse an output that cannot be replaced by a finished file: a pipe or a device.

    Raises:
        typer.BadParameter: it is there, and no regular file.
    """
    if _is_special(path):
        raise typer.BadParameter(
            f"{path} is a pipe or a device; give the name of a file", param_hint="--output"
        )


@contextmanager
def text_aside(path: Path) -> Iterator[Any]:
    """A text file that appears under its name only once it is complete.

    A symbolic link keeps pointing to it; a pipe or a device is written to as it is.

    Raises:
        OSError: the folder is missing or cannot be written to.
    """
    with named_at_the_end(path) as aside, aside.open("w", encoding="utf-8") as file:
        yield file


@contextmanager
def named_at_the_end(path: Path, *, keep_on_error: bool = False) -> Iterator[Path]:
    """A path to write to, whose file gets its name at the end; the path itself if it is special.

    Args:
        path: the name in the end.
        keep_on_error: whether an error (but no interruption) leaves the file under its name, too.
    """
    if _is_special(path):
        yield path
        return
    with written_aside(path, keep_on_error=keep_on_error) as aside:
        yield aside


def _is_special(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _one_file(path: Path, other: Path) -> bool:
    if _is_special(path):
        return False  # is not replaced: reading and writing one terminal is fine
    if path.exists() and other.exists():
        return os.path.samefile(path, other)
    return os.path.realpath(path) == os.path.realpath(other)


def _holds(folder: Path, path: Path) -> bool:
    """Whether ``path`` is one of the files of a catalog that is a folder."""
    if not folder.is_dir():
        return False
    return any(_one_file(path, part) for part in folder.rglob("*.parquet"))
