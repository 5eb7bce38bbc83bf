"""The text shown for a tensor or storage under the cursor: size, bytes, place, live range, findings."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from symalloc.analysis.interprocedural import FunctionAnalysis, analyse
from symalloc.analysis.regions import Region, RegionKind
from symalloc.analysis.sets import members
from symalloc.linter.diagnostic import Diagnostic, UserScript, parse_user_script
from symalloc.program.ir import AllocStorage, AllocTensor, Function, Instruction, Program, Var
from symalloc.program.operands import instructions_of
from symalloc.program.reading import AS_IS
from symalloc.program.span import Span, innermost
from symalloc.program.types import ScalarType, ShapeType, StorageType, TensorType, TupleType, Type
from symalloc.report.quantities import human_bytes
from symalloc.session.linting import LintedText
from symalloc.size.expr import Expr

_SAMPLES = (1, 16, 128, 1024)  # each symbol takes these values, where no binding is given


class HoverText(NamedTuple):
    """A text in Markdown, and the stretch of the text that it is about."""

    markdown: str
    span: Span


class _Target(NamedTuple):
    """A variable under the cursor; `instruction` binds it, None for a parameter."""

    program: Program
    function: Function
    variable: Var
    instruction: Instruction | None
    span: Span


def hover_text(linted: LintedText, line: int, column: int, bind: Mapping[str, int]) -> HoverText | None:
    """Describe the variable at `line` and `column` of a linted script, or the one bound there.

    None where nothing of the kind is there.  `bind` gives values of symbols to show sizes at.
    """
    source = linted.reading.source
    script = parse_user_script(source) if source is not None else None
    if script is None:
        return None
    programs = [program for program in linted.reading.programs if program.stage == AS_IS]
    target = _target(script, programs, script.at(line, column))
    if target is None or not isinstance(target.variable.type, TensorType | StorageType | TupleType):
        return None
    size = _size(target)
    parts = [f"```python\n{target.variable.name}: {_shown_type(target.variable.type)}\n```"]
    if size is not None:
        parts.append("\n".join([f"**size** {_bytes(size)}", *_rows(target, size, bind)]))
    parts += [f"**{title}** {text}" for title, text in _memory(target)]
    findings = [d for d in linted.diagnostics if _is_about(d, target)]
    parts += [f"**{d.severity}** {d.rule}: {d.one_line}" for d in findings]
    return HoverText("\n\n".join(parts), target.span)


# -- the variable under the cursor ---------------------------------------------------------------------------


def _target(script: UserScript, programs: Sequence[Program], place: Span) -> _Target | None:
    nodes = list(ast.walk(script.tree))
    definition = innermost((n for n in nodes if isinstance(n, ast.FunctionDef)), script.span, place)
    found = (
        (program, function)
        for program in programs
        for function in program.functions.values()
        if definition is not None and function.span and function.span.line == definition.lineno
    )
    program, function = next(found, (None, None))
    if program is None or function is None or definition is None:
        return None
    name = innermost((n for n in nodes if isinstance(n, ast.Name | ast.arg)), script.span, place)
    target = _named(script, definition, program, function, name) if name is not None else None
    if target is not None:
        return target
    bound = innermost(instructions_of(function.body), lambda instruction: instruction.span, place)
    if bound is None or bound.span is None or bound.var.name == "_":
        return None
    return _Target(program, function, bound.var, bound, bound.span)


def _named(
    script: UserScript,
    definition: ast.FunctionDef,
    program: Program,
    function: Function,
    node: ast.Name | ast.arg,
) -> _Target | None:
    """The variable that a name means: the last one bound in front of it, in a block around it."""
    span = script.span(node)
    name = node.arg if isinstance(node, ast.arg) else node.id
    blocks = dict(_blocks(definition))
    here = script.statement_at(span)
    branches = blocks.get(here, ())
    stored = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    best: Instruction | None = None
    for instruction in instructions_of(function.body):
        if instruction.span is None or isinstance(node, ast.arg):
            continue
        statement = script.statement_at(instruction.span)
        if stored:  # at the end of a branch TVM gives it another name
            best = instruction if statement is here else best
        elif instruction.var.name == name and statement is not here and instruction.span.start < span.start:
            around = blocks.get(statement, ())
            best = instruction if branches[: len(around)] == around else best
    if best is not None:
        return _Target(program, function, best.var, best, span)
    variable = next((var for var in function.params if var.name == name), None)
    return None if stored or variable is None else _Target(program, function, variable, None, span)


def _blocks(definition: ast.FunctionDef) -> Iterator[tuple[ast.stmt | None, tuple[object, ...]]]:
    """The statements of a function, each with the branches that it stands in; `with` makes no scope."""
    pending: list[tuple[ast.stmt, tuple[object, ...]]] = [(s, ()) for s in definition.body]
    while pending:
        statement, around = pending.pop()
        yield statement, around
        match statement:
            case ast.If():
                pending += [(s, (*around, (id(statement), True))) for s in statement.body]
                pending += [(s, (*around, (id(statement), False))) for s in statement.orelse]
            case ast.With():
                pending += [(s, around) for s in statement.body]


# -- its description -----------------------------------------------------------------------------------------


def _shown_type(kind: Type) -> str:
    match kind:
        case TensorType():
            extents = kind.shape or ()
            shape = f"({', '.join(map(str, extents))}{',' * (len(extents) == 1)})"
            dtype = kind.dtype.name if kind.dtype else "unknown dtype"
            return f"Tensor[{'unknown shape' if kind.shape is None else shape}, {dtype}]"
        case ShapeType():
            return f"Shape[{'unknown' if kind.values is None else ', '.join(map(str, kind.values))}]"
        case TupleType():
            return f"Tuple[{', '.join(map(_shown_type, kind.fields))}]"
        case ScalarType():
            return f"Scalar[{kind.dtype.name if kind.dtype else 'unknown dtype'}]"
        case StorageType():
            return "Storage"
    return "Object"


def _size(target: _Target) -> Expr | None:
    """The bytes of the variable's memory, where it has a size."""
    if isinstance(target.instruction, AllocStorage):
        return target.instruction.size
    return target.variable.type.nbytes if isinstance(target.variable.type, TensorType) else None


def _rows(target: _Target, size: Expr, bind: Mapping[str, int]) -> Iterator[str]:
    """The size at the shapes given, or at some samples and at the declared bounds."""
    symbols = sorted(size.symbols)
    if not symbols:
        return
    declared = target.function.declared_upper
    shapes = [dict.fromkeys(symbols, value) for value in _SAMPLES]
    if declared.keys() >= set(symbols):
        shapes.append({name: declared[name] for name in symbols})
    if bind.keys() >= set(symbols):
        shapes = [{name: bind[name] for name in symbols}]
    for shape in shapes:
        try:
            count = size.evaluate(shape)
        except ZeroDivisionError:
            continue
        given = ", ".join(f"{name} = {value}" for name, value in shape.items())
        yield f"- {given}: {human_bytes(count) if count >= 0 else f'{count} B'}"


def _bytes(size: Expr) -> str:
    """The formula, with its value in a larger unit where it is a large number."""
    count = None if size.symbols else size.evaluate({})
    return f"`{size} B`" + (f" ({human_bytes(count)})" if count is not None and count >= 1024 else "")


def _memory(target: _Target) -> Iterator[tuple[str, str]]:
    """Whose memory it is, where it lies there, and when it is needed."""
    analysis = analyse(target.program)[target.function.name]
    regions = [analysis.points_to.regions[n] for n in members(analysis.points_to.regions_of(target.variable))]
    instruction = target.instruction
    if isinstance(instruction, AllocTensor):
        yield "place", f"byte `{instruction.offset}` of {_storages(analysis, regions)}"
    if len(regions) != 1:
        return
    (region,) = regions
    if region.kind is RegionKind.PARAMETER:
        yield "memory", "of the caller"
    elif region.kind is RegionKind.CONSTANT:
        yield "memory", "a constant of the executable"
    elif region.kind is RegionKind.VIEW:
        yield "memory", f"shared with `{analysis.points_to.regions[region.root].name}`"
    else:
        yield "live", _live(analysis, region)


def _storages(analysis: FunctionAnalysis, regions: Sequence[Region]) -> str:
    parents = [analysis.points_to.regions[r.parent] for r in regions if r.parent is not None]
    shown = [f"`{one.name}`" + (f" (`{one.nbytes} B`)" if one.nbytes is not None else "") for one in parents]
    return " or ".join(shown) or "a storage that is not known"


def _live(analysis: FunctionAnalysis, region: Region) -> str:
    """The lines between which the bytes of a region are needed; of a storage, those of what lies on it."""
    regions = analysis.points_to.regions
    numbers = [r.number for r in regions if region.number in (r.number, r.parent)]
    ranges = analysis.live_ranges(numbers).of.values()
    if not ranges:
        return "never: nothing reads or writes it"
    first = _line(analysis, min(one.first for one in ranges))
    return f"from {first} to {_line(analysis, max(one.last for one in ranges))}"


def _line(analysis: FunctionAnalysis, point: int) -> str:
    instruction = analysis.cfg.points[point].instruction
    if instruction is None:
        return "the end of the function"
    return f"line {instruction.span.line}" if instruction.span else f"`{instruction.var.name}`"


def _is_about(diagnostic: Diagnostic, target: _Target) -> bool:
    """True where a finding points at the variable's binding, or at the parameter."""
    span = target.instruction.span if target.instruction else target.span
    places = [diagnostic.span, *(label.span for label in diagnostic.labels)]
    return span is not None and any(place is not None and place.meets(span) for place in places)
