"""The proof of a plan as SMT-LIB2 scripts, one for each obligation, and an index from which they can be made.

A script states its claim over sizes and offsets as they are emitted, and denies it: any solver of integer
arithmetic is to answer `unsat`, for a broken plan `sat`.  `examples/check_certificate.py` rebuilds from the
index, and from the function as it was emitted, what has to be proved, and compares.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, TypeAlias

import msgspec

from symalloc.planner.check.obligations import ArenaObligations, Obligation
from symalloc.planner.check.validate import ObligationProver
from symalloc.planner.memory_plan import Arena, Guard, Plan
from symalloc.program.ir import Var
from symalloc.prover.domain import Domain, Proof
from symalloc.prover.prover import Prover
from symalloc.prover.smtlib import asserted, declared, encoded, status, term
from symalloc.size.condition import Condition, disjunction, negate
from symalloc.size.expr import Expr

INDEX = "index.json"
FUNCTION = "function.py"
SmtLib: TypeAlias = Annotated[str, msgspec.Meta(description="A term of SMT-LIB over the function's symbols.")]


class CertifiedBuffer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory of `size` bytes for a tensor of `bytes`, at `offset` from the start of its arena.

    Two that are `live` at one position may not meet.  `allocated`: buffers of all arenas are allocated in the
    order of these numbers.
    """

    name: str
    offset: SmtLib
    size: SmtLib
    bytes: SmtLib
    alignment: int
    live: tuple[tuple[int, int], ...]
    allocated: int


class CertifiedArena(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One reserved stretch of memory, whose size is known at entry, or `behind` a point in the function.

    `result`: it is the memory of a result, and no storage.
    """

    size: SmtLib
    device: int
    scope: str
    behind: int | None
    result: bool
    buffers: tuple[CertifiedBuffer, ...]


class CertifiedGuard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A `check` at entry, or `behind` a point in the function, that implies its `condition`.

    All claims may rely on `declared` ones, those about 64 bits on all that stand before their arena.
    """

    condition: SmtLib
    check: SmtLib
    declared: bool
    behind: int | None


class CertifiedClaim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A claim about an arena, and the file that denies it.

    `buffers` are those that it is about, by their numbers in the arena: one, or pairs.  `value`, of a `kind`
    "most", "least" or "divisor", is what it is about instead, of a "guard" its number.  `excludes` says in
    words what the proof rules out.
    """

    file: str
    kind: str
    arena: int
    buffers: tuple[tuple[int, ...], ...]
    value: SmtLib | None
    excludes: str
    expected: Literal["sat", "unsat", "unknown"]


class CertifiedPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plan of a function: its symbols with the least and the greatest value, and all that is claimed.

    `text` is the file that holds the function as it was emitted; null for a packing problem.
    """

    function: str
    text: str | None
    symbols: dict[str, tuple[int, int]]
    guards: tuple[CertifiedGuard, ...]
    arenas: tuple[CertifiedArena, ...]
    claims: tuple[CertifiedClaim, ...]


class Certificate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The index of a certificate.  With `machine` no value may leave 64 bits."""

    version: Literal[2] = 2
    machine: bool
    plans: tuple[CertifiedPlan, ...]


CLAIMS: Mapping[str, str] = {
    "start": "(<= 0 %offset)",
    "aligned": "(= (mod %offset %alignment) 0)",
    "holds": "(<= %bytes %size)",
    "size": "(<= 0 %size)",
    "inside": "(<= (+ %offset %size) %arena)",
    "apart": "(or (<= (+ %offset %size) %offset2) (<= (+ %offset2 %size2) %offset)"
    " (<= %size 0) (<= %size2 0))",
    "most": "(<= %value 9223372036854775807)",
    "least": "(<= (- 9223372036854775808) %value)",
    "divisor": "(<= 1 %value)",
    "guard": "(=> %check %condition)",
}
"""What is claimed, over what a script defines."""


def plan_certificate(
    plans: Iterable[tuple[Plan, Domain]],
    prover: Prover,
    *,
    machine: bool = True,
    texts: Mapping[str, str] = {},
) -> dict[str, str]:
    """The scripts and the index that prove each of `plans` over its domain, by file name.

    `machine` is that of `ArenaObligations.of_each`; `texts` are the functions as they were emitted, by name.
    """
    files: dict[str, str] = {}
    found = []
    for number, (plan, domain) in enumerate(plans):
        folder = f"{number}-{re.sub(r'[^A-Za-z0-9_.-]', '_', plan.function)}"
        text = texts.get(plan.function)
        files.update({} if text is None else {f"{folder}/{FUNCTION}": text})
        writer = _ClaimWriter(plan, ObligationProver.of(plan, domain, prover), folder, files)
        found.append(writer.written(machine, None if text is None else f"{folder}/{FUNCTION}"))
    index = msgspec.json.encode(
        Certificate(machine=machine, plans=tuple(found)), enc_hook=lambda text: "".join(text)
    )
    files[INDEX] = msgspec.json.format(index, indent=1).decode() + "\n"
    return files


@dataclass(slots=True)
class _ClaimWriter:
    """Writes the scripts of one plan to `files`; `points` numbers where sizes become known."""

    plan: Plan
    judge: ObligationProver
    folder: str
    files: dict[str, str]
    symbols: Mapping[str, tuple[int, int]] = field(init=False)
    points: dict[Var, int] = field(default_factory=dict)
    claims: list[CertifiedClaim] = field(default_factory=list)

    def __post_init__(self) -> None:
        plan, domain = self.plan, self.judge.domain
        placed = [p for arena in plan.arenas for p in arena.placements]
        parts: list[Expr | Condition] = [arena.size for arena in plan.arenas]
        parts += [e for p in placed for e in (p.offset, p.buffer.size, p.buffer.nbytes)]
        parts += [c for guard in plan.guards for c in (guard.condition, guard.check)]
        names = sorted(frozenset[str]().union(*(part.symbols for part in parts)))
        self.symbols = {name: (domain.lower_of(name), domain.upper_of(name)) for name in names}

    def written(self, machine: bool, text: str | None) -> CertifiedPlan:
        """The entry of the index."""
        plan = self.plan
        for number, guard in enumerate(plan.guards):
            self._guard(number, guard)
        for number, arena in enumerate(plan.arenas):
            claims = ArenaObligations(arena)
            for one in (*claims.of_each(machine=machine), *claims.all_apart()):
                self._claim(number, arena, one)
        return CertifiedPlan(
            function=plan.function,
            text=text,
            symbols={encoded(name): limits for name, limits in self.symbols.items()},
            guards=tuple(
                CertifiedGuard(
                    condition=term(guard.condition),
                    check=term(guard.check),
                    declared=guard.declared,
                    behind=self._point(guard.defined_by),
                )
                for guard in plan.guards
            ),
            arenas=tuple(map(self._arena, plan.arenas)),
            claims=tuple(self.claims),
        )

    def _point(self, behind: Var | None) -> int | None:
        return None if behind is None else self.points.setdefault(behind, len(self.points))

    def _arena(self, arena: Arena) -> CertifiedArena:
        return CertifiedArena(
            size=term(arena.size),
            device=arena.device,
            scope=arena.scope,
            behind=self._point(arena.defined_by),
            result=arena.result is not None and len(arena.placements) == 1,
            buffers=tuple(
                CertifiedBuffer(
                    name=p.buffer.name,
                    offset=term(p.offset),
                    size=term(p.buffer.size),
                    bytes=term(p.buffer.nbytes),
                    alignment=p.buffer.alignment,
                    live=p.buffer.live,
                    allocated=p.buffer.made,
                )
                for p in arena.placements
            ),
        )

    def _claim(self, number: int, arena: Arena, one: Obligation) -> None:
        """Write the script of an obligation of arena `number`."""
        value = one.value
        terms = {"arena": term(arena.size), "value": "" if value is None else term(value)}
        for index, suffix in zip(one.where[0], ("", "2"), strict=False):
            placed = arena.placements[index]
            terms |= {
                f"offset{suffix}": term(placed.offset),
                f"size{suffix}": term(placed.buffer.size),
                f"bytes{suffix}": term(placed.buffer.nbytes),
                f"alignment{suffix}": str(placed.buffer.alignment),
            }
        proof, before = self.judge.proof(one), (None, one.defined_by)
        guards = [g for g in self.plan.guards if g.declared or (one.guarded and g.defined_by in before)]
        names = ["/".join(arena.placements[index].buffer.name for index in each) for each in one.where]
        what = f"{self.plan.function}: {', '.join(names)}: excludes that {one.problem}"
        self._script(one.kind, number, one.where, what, terms, guards, proof)

    def _guard(self, number: int, guard: Guard) -> None:
        """Write the script that a check implies what it is made for."""
        proof = self.judge.prover.prove(
            disjunction((negate(guard.check), guard.condition)), self.judge.domain
        )
        what = f"{self.plan.function}: excludes that the check passes where {guard.condition} does not hold"
        terms = {"check": term(guard.check), "condition": term(guard.condition), "value": str(number)}
        self._script("guard", 0, ((),), what, terms, [], proof)

    def _script(
        self,
        kind: str,
        arena: int,
        where: tuple[tuple[int, ...], ...],
        what: str,
        terms: Mapping[str, str],
        guards: Sequence[Guard],
        proof: Proof,
    ) -> None:
        claim, answer = CLAIMS[kind], status(proof)
        name = f"{self.folder}/{len(self.claims):04d}-{kind}.smt2"
        used = dict.fromkeys(re.findall(r"%(\w+)", claim))
        sort = "Bool" if kind == "guard" else "Int"
        lines = [
            f"; {' '.join(what.split())}",
            f"(set-info :status {answer})",
            "(set-logic ALL)",
            *declared(self.symbols),
            *asserted(guard.condition for guard in guards),
            *(f"(define-fun %{part} () {sort} {terms[part]})" for part in used),
            f"(assert (not {claim}))",
            "(check-sat)",
        ]
        self.files[name] = "\n".join(lines) + "\n"
        value = terms.get("value") or None
        self.claims.append(
            CertifiedClaim(
                file=name, kind=kind, arena=arena, buffers=where, value=value, excludes=what, expected=answer
            )
        )


def write_certificate(folder: Path, files: Mapping[str, str]) -> None:
    """Write `files` into `folder`, which is made where it is missing; the index last.

    They are written beside it first, so that a full disk leaves nothing half written.  Raises OSError.
    """
    folder = folder.absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as staging:
        for name, text in files.items():
            staged = Path(staging) / name
            staged.parent.mkdir(exist_ok=True)
            staged.write_text(text, encoding="utf-8")
        for name in files:
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (Path(staging) / name).replace(target)
