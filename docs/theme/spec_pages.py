"""The specification as pages: its words to the left, the code that they are about to the right.

A hook of MkDocs. Each module of ``spec/beamsieve_spec`` becomes one page. Docstrings and comments
on lines of their own are the words; everything else is the code. Nothing is left out, and nothing
is written twice: the pages are made anew with every build.

Links of other pages that lead into the repository become the names of what they lead to.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

SPEC = Path(__file__).parents[2] / "spec" / "beamsieve_spec"
DOCUMENTED = ast.Module | ast.ClassDef | ast.FunctionDef
OUTWARD = re.compile(r"\[([^\]]+)\]\(((?:\.\./|examples/)[^)]*)\)")
HEADINGS = re.compile(r"^(Args|Attributes|Returns|Raises|Yields):$", re.M)


@dataclass
class Piece:
    """Some words, and the lines of code that they stand beside."""

    words: list[str] = field(default_factory=list)
    code: list[str] = field(default_factory=list)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages to the site."""
    for path in sorted(SPEC.glob("*.py")):
        name = "index" if path.stem == "__init__" else path.stem
        page = page_of(path.read_text("utf-8"), path.stem)
        files.append(File.generated(config, f"spec/{name}.md", content=page))
    return files


def on_page_markdown(markdown: str, **context: Any) -> str:
    """Name what lies in the repository, as no page leads there."""

    def named(link: re.Match[str]) -> str:
        text, target = link[1], link[2].removeprefix("../").partition("#")[0]
        return text if target in text else f"{text} (`{target}`)"

    return OUTWARD.sub(named, markdown)


def page_of(source: str, name: str) -> str:
    """A module as Markdown."""
    title, pieces = read(source)
    heading = "The specification" if name == "__init__" else name.replace("_", ": ").capitalize()
    parts = [f"---\nhide: [toc]\ntitle: {heading}\n---\n\n# {heading}\n\n{title}\n"]
    for piece in pieces:
        words, code = "\n\n".join(piece.words), "\n".join(piece.code).strip("\n")
        if not words and not code:
            continue
        block = f"```python\n{code}\n```" if code else ""
        parts.append(
            f'<div class="beside" markdown>\n<div markdown>\n\n{words}\n\n</div>\n'
            f"<div markdown>\n\n{block}\n\n</div>\n</div>\n"
        )
    return "\n".join(parts)


def read(source: str) -> tuple[str, list[Piece]]:
    """The module's own words, and its pieces in order."""
    lines = source.splitlines()
    docs, starts = _docstrings(ast.parse(source))
    module = docs.pop(1, None)
    title = "" if module is None else as_markdown(module[1])
    piece = Piece()
    pieces = [piece]
    number = 1 if module is None else module[0] + 1
    while number <= len(lines):
        line = lines[number - 1]
        comment = line.strip().startswith("#") and not line.strip().startswith("#!")
        if number in starts or (comment and (piece.code and any(piece.code))):
            piece = Piece()
            pieces.append(piece)
        if number in docs:
            end, text = docs[number]
            piece.words.append(as_markdown(text))
            number = end + 1
            continue
        if comment:
            block = []
            while number <= len(lines) and lines[number - 1].strip().startswith("#"):
                block.append(lines[number - 1].strip().lstrip("#").strip())
                number += 1
            piece.words.append(as_markdown("\n".join(block)))
            continue
        piece.code.append(line)
        number += 1
    return title, pieces


def _docstrings(tree: ast.Module) -> tuple[dict[int, tuple[int, str]], set[int]]:
    """Strings that are statements, by first line: last line and text; and where pieces begin."""
    docs: dict[int, tuple[int, str]] = {}
    starts: set[int] = set()
    for node in _walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            above = [decorator.lineno for decorator in node.decorator_list]
            starts.add(min([node.lineno, *above]))
        value = node.value if isinstance(node, ast.Expr) else None
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            docs[value.lineno] = (value.end_lineno or value.lineno, value.value)
    return docs, starts


def _walk(node: ast.AST) -> Iterator[ast.AST]:
    """The statements of a module and of its classes and functions."""
    for child in getattr(node, "body", []):
        yield child
        if isinstance(child, DOCUMENTED):
            yield from _walk(child)


def as_markdown(text: str) -> str:
    """A docstring's words in Markdown: code marks, headings of arguments, doctests."""
    text = inspect.cleandoc(text)
    text = re.sub(r":\w+:`~?([^`]+)`", r"`\1`", text)
    text = text.replace("``", "`")
    out: list[str] = []
    section = doctest = False
    for line in text.splitlines():
        if HEADINGS.match(line):
            out += ["", f"**{line}**", ""]
            section = True
            continue
        if section and line.startswith("    ") and not line.startswith("     "):
            line = f"- {line.strip()}"
        elif section and line.strip():
            line = f"    {line.strip()}" if line.startswith(" ") else line
            section = line.startswith(" ")
        if line.strip().startswith(">>>") and not doctest:
            out += ["", "```python"]
            doctest = True
        elif doctest and not line.strip():
            out += ["```"]
            doctest = False
        out.append(line.strip() if doctest else line)
    if doctest:
        out.append("```")
    return "\n".join(out)
