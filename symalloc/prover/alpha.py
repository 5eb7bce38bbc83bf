"""Proofs carried over to other names: layers of a model ask the same question about other symbols."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from symalloc.prover.verdict import Proof
from symalloc.size.expr import symbol

__all__ = ["canonical", "rename_proof"]

_WORD = re.compile(r"[A-Za-z_]\w*")
_RESERVED = frozenset(("min", "max", "and", "or"))  # words of the canonical text that are no symbols


def canonical(text: str, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """`text` with symbols numbered as they first occur, and the symbols in that order."""
    if not _RESERVED.isdisjoint(names) or not all(map(str.isidentifier, names)):
        return text, tuple(names)
    numbers: dict[str, str] = {}
    known = frozenset(names)

    def number(match: re.Match[str]) -> str:
        word = match.group()
        if word not in known:
            return word
        return numbers.setdefault(word, f"${len(numbers)}")

    return _WORD.sub(number, text), tuple(numbers)


def rename_proof(proof: Proof, old: Sequence[str], new: Sequence[str]) -> Proof | None:
    """`proof` about `old` as a proof about `new`; None where its words name a symbol."""
    if tuple(old) == tuple(new):
        return proof
    if proof.reason is not None:
        return None
    table = dict(zip(old, new, strict=True))
    precondition = proof.precondition
    if precondition is not None:
        precondition = precondition.substitute({a: symbol(b) for a, b in table.items()})
    return replace(
        proof,
        counterexample=_rename(proof.counterexample, table),
        witness=_rename(proof.witness, table),
        precondition=precondition,
    )


def _rename(point: Mapping[str, int] | None, table: Mapping[str, str]) -> dict[str, int] | None:
    return (
        None if point is None else {table[n]: v for n, v in sorted(point.items(), key=lambda i: table[i[0]])}
    )
