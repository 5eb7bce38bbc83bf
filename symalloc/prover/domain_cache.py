"""The prover's memory: proofs by domain, and proofs carried over to other names.

The layers of a model ask the same question about other symbols, so proofs are also kept by a text in which
symbols are numbered.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from symalloc.prover.domain import Domain
from symalloc.prover.normalize import NormalizedDomain, components, normalize, relevant
from symalloc.prover.verdict import Proof
from symalloc.size.condition import Condition
from symalloc.size.expr import symbol


class DomainCache:
    """A domain with its assumptions grouped, its normal forms, and the proofs already given over it."""

    __slots__ = ("by_symbols", "domain", "empty", "explained", "groups", "plain")

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.empty = any(domain.lower_of(n) > domain.upper_of(n) for n in {**domain.lower, **domain.upper})
        self.groups = components(domain.assumptions) if domain.assumptions else []
        self.by_symbols: dict[frozenset[str], tuple[NormalizedDomain, str]] = {}
        self.explained: dict[Condition, Proof] = {}
        self.plain: dict[Condition, Proof] = {}

    def normalized(self, symbols: frozenset[str]) -> tuple[NormalizedDomain, str]:
        """The part of the domain that matters for `symbols`, and the text of its assumptions."""
        found = self.by_symbols.get(symbols)
        if found is None:
            names, assumptions = relevant(self.groups, symbols)
            text = "&".join(a.key for a in assumptions)
            found = (normalize(self.domain, names, assumptions), text)
            self.by_symbols[symbols] = found
        return found

    def other_parts(self, names: frozenset[str]) -> list[NormalizedDomain]:
        """The parts of the domain whose assumptions have no symbol of `names`."""
        return [self.normalized(group)[0] for group, _ in self.groups if group.isdisjoint(names)]


def content_key(domain: Domain) -> tuple[object, ...]:
    """A key that is equal for domains that say the same in the same order."""
    return (
        domain.default_lower,
        domain.default_upper,
        tuple(sorted(domain.lower.items())),
        tuple(sorted(domain.upper.items())),
        tuple(a.key for a in domain.assumptions),
    )


_WORD = re.compile(r"[A-Za-z_]\w*")
_RESERVED = frozenset(("min", "max", "and", "or"))  # words of the canonical text that are no symbols


def canonicalize(text: str, names: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return `text` with symbols numbered as they first occur, and the symbols in that order."""
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
