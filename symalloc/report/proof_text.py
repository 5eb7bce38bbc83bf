"""Answers of the prover as text."""

from __future__ import annotations

from collections.abc import Iterator

from symalloc.prover.verdict import Proof, counterexample_title
from symalloc.report.quantities import binding_text


def proof_facts(proof: Proof, claim: str = "") -> Iterator[tuple[str, str]]:
    """Yield what a proof of `claim` tells besides its verdict, and the names of that."""
    if proof.counterexample:
        yield counterexample_title(proof.smallest), binding_text(proof.counterexample)
        if proof.witness:
            yield "holds at", binding_text(proof.witness)
    if proof.precondition is not None and str(proof.precondition) != claim:
        yield "holds only when", str(proof.precondition)
    if proof.reason is not None:
        yield ("unknown" if proof.unknown else "note"), proof.reason
    took = f"{1e3 * proof.seconds:.1f} ms"
    tried = proof.decided_by == "none"
    yield ("tried for", took) if tried else ("decided by", f"{proof.decided_by} in {took}")
