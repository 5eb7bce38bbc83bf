"""Prime factors of numbers that an equation may be about, by Pollard's rho method."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from math import gcd, isqrt

LIMIT = 4 * 10**12
SMALL = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
"""Prime by prime; as bases of the Miller-Rabin test they decide every number below 3 * 10**24."""


@lru_cache(maxsize=256)
def factor(value: int) -> dict[int, int] | None:
    """The prime factors of `value` >= 1 with their powers; None for `LIMIT` and above."""
    if value >= LIMIT:
        return None
    primes: Counter[int] = Counter()
    for prime in SMALL:
        while value % prime == 0:
            value //= prime
            primes[prime] += 1
    pending = [value] if value > 1 else []
    while pending:
        number = pending.pop()
        if is_prime(number):
            primes[number] += 1
        else:
            divisor = _divisor(number)
            pending += (divisor, number // divisor)
    return dict(sorted(primes.items()))


def is_prime(value: int) -> bool:
    """True if `value`, greater than 1 and without a factor in `SMALL`, is a prime (Miller-Rabin)."""
    odd, twos = value - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in SMALL:
        power = pow(base, odd, value)
        if power in (1, value - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % value
            if power == value - 1:
                break
        else:
            return False
    return True


def _divisor(value: int) -> int:
    """A divisor of `value`, which is composite and odd, other than 1 and itself."""
    root = isqrt(value)
    if root * root == value:
        return root
    found, step = value, 0
    while found == value:
        step += 1
        slow = fast = 2
        found = 1
        while found == 1:
            slow = (slow * slow + step) % value
            fast = (fast * fast + step) % value
            fast = (fast * fast + step) % value
            found = gcd(slow - fast, value)
    return found
