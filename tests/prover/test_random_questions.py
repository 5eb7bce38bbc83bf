"""A small campaign of random constraints: nothing that brute force can say against the proofs."""

from __future__ import annotations

import random

import pytest

from symalloc.prover.prover import Prover
from symalloc.size.parse import parse_condition
from tests.prover.random_questions import contradictions, domain_of, plain, readable_question


@pytest.mark.parametrize("seed", range(4))
def test_brute_force_does_not_contradict_proofs(seed: int) -> None:
    rng, prover = random.Random(seed), Prover()
    smallest = 0
    for _ in range(100):
        question = readable_question(rng)
        proof = prover.prove(parse_condition(plain(question.constraint)), domain_of(question))
        assert list(contradictions(question, proof, 26 if question.complete else 4)) == [], question
        smallest += bool(proof.counterexample) and proof.smallest
    assert smallest > 20
