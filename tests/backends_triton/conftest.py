"""Launches that compile the kernel for a GPU, which takes none, in place of starting it."""

import pytest
import torch

POINTERS = {
    torch.float32: "*fp32", torch.bfloat16: "*bf16", torch.float16: "*fp16", torch.int64: "*i64",
    torch.int32: "*i32", torch.int16: "*i16", torch.int8: "*i8",
}  # fmt: skip


@pytest.fixture
def compile_instead(monkeypatch):
    """Makes all launches compile for ``architecture``; returns the set of kernels that did.

    Of a kernel, only what differs in its yes-or-no constants is compiled, as sizes of blocks repeat
    it, or ``every_shape``. ``wanted`` names those that are; all, unless it is given.
    """
    # Triton is installed on Linux only, where the tests that ask for this are not skipped.
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource, compile

    from beamsieve_backends.triton_slots import (
        call,
        full,
        halves,
        kept,
        matchers,
        one_row,
        selective,
    )

    def begin(architecture, wanted=None, every_shape=False):
        compiled, seen = set(), set()

        def launch(kernel, grid, *arguments, warps=4, stages=3, registers=None, **constants):
            name = kernel.fn.__name__
            if wanted is not None and name not in wanted:
                return
            constants["PDL"] = architecture >= 90
            names = [parameter.name for parameter in kernel.params]
            special = [not parameter.do_not_specialize for parameter in kernel.params]
            signature, values, known = {}, {}, {}
            for place, argument in enumerate(arguments):
                if isinstance(argument, torch.Tensor):
                    signature[names[place]] = POINTERS[argument.dtype]
                    aligned = every_shape
                else:
                    signature[names[place]] = "i32"
                    aligned = every_shape and special[place] and argument % 16 == 0
                if aligned:  # as a launch would find it
                    known[(place,)] = [["tt.divisibility", 16]]
            for constant, value in constants.items():
                signature[constant] = "constexpr"
                values[(names.index(constant),)] = value
            options = {"num_warps": warps, "num_stages": stages, "launch_pdl": constants["PDL"]}
            if registers is not None:
                options["maxnreg"] = registers
            way = sorted(n for n, value in constants.items() if value is True)
            if every_shape:
                way = sorted(map(repr, [*signature.items(), *values.items(), *options.items()]))
            if (name, *way) in seen:
                return
            seen.add((name, *way))
            source = ASTSource(kernel, signature, values, known)
            target = GPUTarget("cuda", architecture, 32)
            assert compile(source, target=target, options=options).asm["cubin"]
            compiled.add(name)

        for module in (call, full, halves, kept, matchers, one_row, selective):
            monkeypatch.setattr(module, "launch", launch)
        return compiled

    return begin
