"""Functions written step by step, whose kernels make tensors of others, and tensors put into one memory."""

from __future__ import annotations

from typing import Any

from symalloc.planner.memory_plan import Arena, Buffer, Placement
from symalloc.program.ir import AllocFresh, Operand, Program, Var
from symalloc.program.types import DType, TensorType
from symalloc.size.expr import ZERO
from tests.planner.random_programs import MIX, MIX_KERNEL, Maker
from tests.program.build import F32, KERNELS, U8, Body, program_of, tensor_of

__all__ = ["Steps", "in_one_memory", "program_of_maker"]


class Steps(Body):
    """`made z` is a tensor of n bytes that a kernel makes of z; what else makes one says how it differs."""

    def made(
        self, *sources: Var, extents: tuple[int | str, ...] = ("n",), dtype: DType = U8, **more: Any
    ) -> Var:
        kind = tensor_of(*extents, dtype=dtype)
        assert kind.shape is not None
        out = self.var(kind, more.pop("name", None))
        self.emit(AllocFresh(var=out, shape=kind.shape, dtype=dtype, **more))
        self.call("add" if len(sources) > 1 else "copy", *sources, out)
        return out

    def output(self, source: Var) -> Var:
        return self.made(source, name="y")

    def longer(self, source: Var) -> Var:
        return self.made(source, extents=("n + 1",))

    def turned(self, source: Var) -> Var:
        """A tensor of as many bytes in other rows."""
        return self.made(source, extents=(1, "n"))

    def floats(self, source: Var) -> Var:
        return self.made(source, dtype=F32, name="y")


def in_one_memory(tensors: list[Var], first: Var) -> Arena:
    """An arena as large as `first`, at whose start tensors lie."""
    assert isinstance(first.type, TensorType) and first.type.nbytes is not None
    size = first.type.nbytes
    buffers = [Buffer(id=i, name=v.name, size=size, live=(), var=v) for i, v in enumerate(tensors)]
    placed = tuple(Placement(buffer=buffer, offset=ZERO) for buffer in buffers)
    return Arena(device=0, scope="global", size=size, placements=placed)


def program_of_maker(maker: Maker, result: Operand) -> Program:
    return program_of(maker.body.finish(result), kernels={**KERNELS, MIX: MIX_KERNEL})
