"""Do the CUDA sources compile? Asked of NVRTC, which needs no GPU.

Every ``.cu`` file that a backend of this distribution declares in ``kernel_sources`` is compiled
for each supported architecture, behind the ``.cuh`` files that the backend declares, in their order
(the sources are joined, not included). A kernel template is compiled for every value its parameters
can have here: ``class`` is float, bfloat16 and float16, ``bool`` is true and false::

    python -m beamsieve_conformance.compile_check

NVRTC is found where ``pip install nvidia-cuda-nvrtc`` or a CUDA toolkit puts it.
"""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path

from beamsieve_conformance.records import installed_kernels

ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
OPTIONS = ("--std=c++17",)
VALUES = {"class": ("float", "bfloat16", "float16"), "bool": ("true", "false")}
KERNEL = re.compile(
    r"(?:template\s*<(?P<parameters>[^>]*)>\s*)?"
    r"__global__\s+void\s+(?:__launch_bounds__\([^)]*\)\s+)?(?P<name>\w+)\s*\("
)


class NoCompilerError(RuntimeError):
    """NVRTC is not here; the message says how to get it."""


@dataclass(frozen=True)
class Program:
    """One ``.cu`` file with all that it needs, and the kernels in it, every instance."""

    backend: str
    file: str
    text: str
    kernels: tuple[str, ...]


def programs(
    kernels: Mapping[str, tuple[Path, tuple[str, ...]]] | None = None,
) -> list[Program]:
    """What there is to compile.

    Args:
        kernels: per backend, its package's folder and its kernel sources; by default those of
            every backend in this distribution.
    """
    found = []
    for backend, (folder, sources) in (installed_kernels() if kernels is None else kernels).items():
        shared = [_read(folder / name) for name in sources if name.endswith(".cuh")]
        for name in sources:
            if name.endswith(".cu"):
                own = _read(folder / name)
                text = "\n".join([*shared, own])
                found.append(Program(backend, name, text, tuple(instances(own))))
    return found


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def instances(text: str) -> Iterator[str]:
    """The kernels of a source, as C++ names each instance.

    >>> list(instances("template <class T>\\n__global__ void f(T* x) {}\\n__global__ void g() {}"))
    ['f<float>', 'f<bfloat16>', 'f<float16>', 'g']
    """
    for kernel in KERNEL.finditer(text):
        name, parameters = kernel["name"], kernel["parameters"]
        if parameters is None:
            yield name
            continue
        kinds = [parameter.split()[0] for parameter in parameters.split(",")]
        for values in itertools.product(*(VALUES[kind] for kind in kinds)):
            yield f"{name}<{', '.join(values)}>"


class Compiler:
    """NVRTC, loaded.

    Raises:
        NoCompilerError: it is not installed.
    """

    def __init__(self) -> None:
        path = next(_libraries(), None)
        if path is None:
            raise NoCompilerError("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
        # NVRTC opens its built-ins by name as it compiles, and does not look beside itself.
        for builtins in sorted(Path(path).parent.glob("libnvrtc-builtins.so*")):
            ctypes.CDLL(str(builtins))
        self._nvrtc = ctypes.CDLL(path)

    def problem(self, program: Program, architecture: str) -> str:
        """What the compiler says against ``program``; nothing when it compiles."""
        return self.compile(program, architecture)[0]

    def compile(self, program: Program, architecture: str) -> tuple[str, bytes]:
        """What the compiler says against ``program``, or nothing and its code: for
        the machine (ELF) where ``architecture`` is sm_N, as PTX where it is compute_N."""
        nvrtc, handle = self._nvrtc, ctypes.c_void_p()
        self._check(
            nvrtc.nvrtcCreateProgram(
                ctypes.byref(handle), program.text.encode(), program.file.encode(), 0, None, None
            )
        )
        try:
            for kernel in program.kernels:
                self._check(nvrtc.nvrtcAddNameExpression(handle, kernel.encode()))
            options = [
                option.encode() for option in (*OPTIONS, f"--gpu-architecture={architecture}")
            ]
            array = (ctypes.c_char_p * len(options))(*options)
            if nvrtc.nvrtcCompileProgram(handle, len(options), array) == 0:
                return "", self._result(handle, "CUBIN" if architecture[:3] == "sm_" else "PTX")
            log = self._result(handle, "ProgramLog").partition(b"\0")[0]
            return log.decode(errors="replace").strip(), b""
        finally:
            nvrtc.nvrtcDestroyProgram(ctypes.byref(handle))

    def _result(self, handle: ctypes.c_void_p, name: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._nvrtc, f"nvrtcGet{name}Size")(handle, ctypes.byref(size)))
        text = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._nvrtc, f"nvrtcGet{name}")(handle, text))
        return text.raw

    def _check(self, code: int) -> None:
        if code:
            self._nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(f"NVRTC: {self._nvrtc.nvrtcGetErrorString(code).decode()}")


def _libraries() -> Iterator[str]:
    """Where NVRTC may be: the pip package, a toolkit, the system."""
    package = importlib.util.find_spec("nvidia")
    folders = (
        [Path(place) for place in (package.submodule_search_locations or [])] if package else []
    )
    toolkits = (os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH"))
    folders += [Path(toolkit) for toolkit in toolkits if toolkit]
    for folder in folders:
        for pattern in ("libnvrtc.so*", "nvrtc64_*.dll"):
            yield from (
                str(path) for path in sorted(folder.rglob(pattern)) if "builtins" not in path.name
            )
    found = find_library("nvrtc")
    if found:
        yield found


def check(found: Sequence[Program], architectures: Sequence[str] = ARCHITECTURES) -> list[str]:
    """What does not compile, one entry per file and architecture.

    Raises:
        NoCompilerError: there is something to compile, and nothing to compile it with.
    """
    if not found:
        return []
    compiler = Compiler()
    problems = []
    for program in found:
        if not program.kernels:
            problems.append(f"{program.file}: holds no kernel")
            continue
        for architecture in architectures:
            said = compiler.problem(program, architecture)
            if said:
                problems.append(f"{program.file} for {architecture}:\n{said}")
    return problems


def main() -> int:
    """Compile everything that is declared; 0 when all compiles, 2 without a compiler."""
    found = programs()
    try:
        problems = check(found)
    except NoCompilerError as error:
        print(error, file=sys.stderr)
        return 2
    for problem in problems:
        print(problem, file=sys.stderr)
    if not problems:
        kernels = sum(len(program.kernels) for program in found)
        print(
            f"{len(found)} CUDA sources, {kernels} kernels, compile for {', '.join(ARCHITECTURES)}"
            if found
            else "no backend declares a CUDA source: nothing to compile"
        )
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
