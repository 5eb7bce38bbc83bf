"""Programs as text, an instruction a line: its variable and kind, then the fields that are no defaults."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from enum import Enum

from symalloc.program import ir as m
from symalloc.program import types as t

__all__ = ["instruction", "lines", "text"]


def lines(block: m.Block, depth: int = 0) -> Iterator[str]:
    """The instructions of a block and of its branches, and what it yields."""
    for each in block.instructions:
        yield "  " * depth + instruction(each)
        if isinstance(each, m.If):
            yield from lines(each.then, depth + 1)
            yield "  " * depth + "else"
            yield from lines(each.otherwise, depth + 1)
    yield "  " * depth + f"-> {text(block.result)}"


def instruction(made: m.Instruction) -> str:
    """One instruction, without its place."""
    said = [f"{made.var.name}: {text(made.var.type)} = {type(made).__name__}"]
    for field in fields(made):
        value = getattr(made, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name not in ("var", "span", "handle", "then", "otherwise") and value != default:
            said.append(f"{field.name}={text(value)}")
    return " ".join(said)


def text(value: object) -> str:
    """A type, an operand, an expression, or several."""
    match value:
        case m.Var(name=name):
            return name
        case m.FunctionRef(name=name) | t.DType(name=name):
            return name
        case m.Scalar(value=inner) | t.ScalarType(value=inner):
            return "?" if inner is None else str(inner)
        case m.ShapeValue(values=inner) | t.ShapeType(values=inner):
            return f"shape{text(inner)}"
        case m.ConstantTensor(type=kind, values=values):
            return f"const {text(kind)} {text(values)}"
        case t.TensorType(shape=shape, dtype=dtype, device=device, scope=scope):
            return f"{text(dtype)}{text(shape)}" + (f"@{device}:{scope}" if device else "")
        case m.TupleValue(items=inner) | t.TupleType(fields=inner) | tuple(inner):
            return f"({', '.join(map(text, inner))})"
        case frozenset():
            return f"{{{', '.join(sorted(map(text, value)))}}}"
        case m.TextLiteral(text=inner):
            return repr(inner)
        case Enum():
            return value.name
        case None:
            return "?"
    is_type = type(value).__module__ == t.__name__
    return type(value).__name__.removesuffix("Type").lower() if is_type else str(value)
