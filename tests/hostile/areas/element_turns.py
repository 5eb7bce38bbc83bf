"""Kernels that take turns, look ahead, count from below, or go through views that begin elsewhere."""

from __future__ import annotations

from signal import SIGSEGV

from tests.hostile.areas.element_order import kernel_program
from tests.hostile.machine import floats

__all__ = ["PROGRAMS"]

PROGRAMS = (
    kernel_program(
        "fifteen-threads",
        "fifteen threads fill sixteen elements",
        """
- for t in T.thread_binding(15, thread='threadIdx.x'):
+ for t in T.thread_binding(16, thread='threadIdx.x'):
      b[t] = a[t]
""",
        shows=None,
    ),
    kernel_program(
        "remainder-of-a-negative",
        "one of sixteen remainders is left out, the first of them of a negative number",
        """
- for i in range(15):
+ for i in range(16):
      b[(i - 5) % 16] = a[i]
""",
    ),
    kernel_program(
        "quotient-of-a-negative",
        "a quotient of a negative number is one less than it looks",
        """
  for i in range(16):
-     b[(i - 9) // 2 + 4] = a[i]
+     b[(i - 8) // 2 + 4] = a[i]
  for i in range(8):
      b[8 + i] = a[i]
""",
        rule="SYM306",
    ),
    kernel_program(
        "scratch-of-a-block",
        "a block reads the other element of its own scratch",
        """
  for i in range(16):
      with T.sblock('s'):
          vi = T.axis.spatial(16, i)
          c = T.sblock_alloc_buffer((2,), 'float32')
          c[0] = a[vi]
-         b[vi] = c[1]
+         b[vi] = c[0]
""",
    ),
    kernel_program(
        "odd-before-even",
        "even elements come from the odd one before, and the first has none",
        """
  for i in range(n):
-     if i % 2 != 0:
+     if i % 2 == 0:
          b[i] = a[i]
  for i in range(n):
-     if i % 2 == 0:
-         b[i] = b[T.max(i - 1, 0)]
+     if i % 2 != 0:
+         b[i] = b[i - 1]
""",
        size=1,
        verdict="always-invalid",
    ),
    kernel_program(
        "thirds",
        "each second of three elements comes from the third, which is stored later",
        """
  for i in range(n):
      if i % 3 == 0:
          b[i] = a[i]
      elif i % 3 == 1:
-         b[i] = b[T.min(i + 1, n - 1)]
+         b[i] = b[i - 1]
      else:
          b[i] = b[i - 2]
""",
        size=2,
    ),
    kernel_program(
        "taking-turns",
        "two rows take turns, and the first pass reads the one that is empty",
        """
  c = T.alloc_buffer((2, n), 'float32')
  for i in range(n):
      c[0, i] = a[i]
  for s in range(3):
      for i in range(n):
-         c[s % 2, i] = c[(s + 1) % 2, n - 1 - i]
+         c[(s + 1) % 2, i] = c[s % 2, n - 1 - i]
  for i in range(n):
-     b[i] = c[0, i]
+     b[i] = c[1, i]
""",
        size=1,
        verdict="always-invalid",
    ),
    kernel_program(
        "twice-as-far",
        "a scratch is read twice as far as it is stored",
        """
  c = T.alloc_buffer((n,), 'float32')
  for i in range(n):
      c[i] = a[i]
-     b[i] = c[T.min(i * 2, n - 1)]
+     b[i] = c[i // 2]
""",
        size=3,
    ),
    kernel_program(
        "delay",
        "a delay of three begins with two zeros",
        """
  c = T.alloc_buffer((n + 3,), 'float32')
- for i in range(2):
+ for i in range(3):
      c[i] = T.float32(0)
  for i in range(n):
      c[i + 3] = a[i]
      b[i] = c[i]
""",
        size=3,
    ),
    kernel_program(
        "rest-of-a-block",
        "the rest of n behind blocks of four lacks its last element",
        """
  for o in range(n // 4):
      for j in range(4):
          b[o * 4 + j] = a[o * 4 + j]
- if n % 4 != 0:
-     for j in range(n - n // 4 * 4 - 1):
-         b[n // 4 * 4 + j] = T.float32(0)
+ for j in range(n - n // 4 * 4):
+     b[n // 4 * 4 + j] = T.float32(0)
""",
        size=1,
    ),
    kernel_program(
        "squares",
        "the square of an index may be n itself",
        """
  for i in range(n):
      b[i] = T.float32(0)
  for i in range(n):
-     if i * i <= n:
+     if i * i < n:
          b[i * i] = a[i]
""",
        size=4,
        rule="SYM306",
    ),
    kernel_program(
        "products",
        "a product of indices that count from one is not made one that counts from none",
        """
  for i in range(n):
      b[i] = T.float32(0)
  for i, j in T.grid(n, n):
      if (i + 1) * (j + 1) <= n:
-         b[(i + 1) * (j + 1)] = a[i]
+         b[(i + 1) * (j + 1) - 1] = a[i]
""",
        size=1,
        rule="SYM306",
        verdict="always-invalid",
    ),
    kernel_program(
        "odd-row",
        "rows of two leave the last element of an odd n",
        """
  d = T.decl_buffer((n // 2, 2), 'float32', data=b.data)
  for i, j in T.grid(n // 2, 2):
      d[i, j] = a[i * 2 + j]
- for i in range(n % 2 - 1):
+ for i in range(n % 2):
      b[n - 1] = T.float32(0)
""",
        size=1,
    ),
    kernel_program(
        "one-element-on",
        "a buffer one element on copies from the one before that is stored last",
        """
  d = T.decl_buffer((n - 1,), 'float32', data=b.data, elem_offset=1)
+ b[0] = T.float32(0)
  for i in range(n - 1):
      d[i] = b[i]
- b[0] = T.float32(0)
""",
        size=2,
    ),
    kernel_program(
        "masked-bytes",
        "a byte of each element is masked before the element is stored",
        """
  d = T.decl_buffer((n * 4,), 'uint8', data=b.data)
  for i in range(n):
-     d[i * 4 + 3] = T.bitwise_and(d[i * 4 + 3], T.uint8(127))
- for i in range(n):
      b[i] = a[i]
+ for i in range(n):
+     d[i * 4 + 3] = T.bitwise_and(d[i * 4 + 3], T.uint8(127))
""",
        size=1,
        verdict="always-invalid",
        shows=None,
    ),
    kernel_program(
        "lanes-backwards",
        "lanes go backwards from one element too far",
        """
  for o in range(4):
      for v in T.vectorized(4):
-         b[o * 4 + 4 - v] = a[o * 4 + v]
+         b[o * 4 + 3 - v] = a[o * 4 + v]
""",
        rule="SYM306",
        also=frozenset(["SYM208"]),
    ),
    kernel_program(
        "sums-in-lanes",
        "lanes sum up what was not set to 0",
        """
+ for v in T.vectorized(16):
+     b[v] = T.float32(0)
  for s in range(3):
      for v in T.vectorized(16):
          b[v] = b[v] + a[v]
""",
    ),
    kernel_program(
        "tiles-side-by-side",
        "tiles side by side are rounded up by two instead of three",
        """
- for p in T.parallel((n + 2) // 4):
+ for p in T.parallel((n + 3) // 4):
      for j in range(4):
          if p * 4 + j < n:
              b[p * 4 + j] = a[p * 4 + j]
""",
        size=1,
    ),
    kernel_program(
        "predicate-at-the-start",
        "a predicate takes the start of the sum from the first element",
        """
  for i, r in T.grid(n, 3):
      with T.sblock('s'):
          vi = T.axis.spatial(n, i)
          vr = T.axis.reduce(3, r)
-         T.where(i + r >= 1)
+         T.where(i + r < n)
          with T.init():
              b[vi] = T.float32(0)
-         b[vi] = b[vi] + a[T.max(vi - vr, 0)]
+         b[vi] = b[vi] + a[vi + vr]
""",
        size=1,
        counterexample=None,
    ),
    kernel_program(
        "halves-in-turn",
        "the second half is read from one element too far",
        """
  for i in range(n // 2):
      b[i] = a[n - n // 2 + i]
  for i in range(n - n // 2):
-     b[n // 2 + i] = a[n // 2 + 1 + i]
+     b[n // 2 + i] = a[i]
""",
        size=1,
        rule="SYM307",
        verdict="always-invalid",
    ),
    kernel_program(
        "shift-of-a-negative",
        "a shift of a negative number is rounded down to one element before the first",
        """
  for i in range(16):
-     b[T.shift_right(i - 17, 4) + 1] = a[i]
+     b[T.shift_right(i - 16, 4) + 1] = a[i]
  for i in range(16):
      b[i] = a[i]
""",
        rule="SYM306",
    ),
    kernel_program(
        "both-sides-of-and",
        "the side of `and` that loads is computed whatever the other one is; the twin loads within bounds",
        """
  for i in range(n):
-     b[i] = T.if_then_else(i > 1000 and a[i + 1099511627776] > T.float32(0), T.float32(1), T.float32(2))
+     b[i] = T.if_then_else(i > 1000 and a[i] > T.float32(0), T.float32(1), T.float32(2))
""",
        size=1,
        rule="SYM307",
        severity="warning",
        verdict="runtime-check",
        signal=SIGSEGV,
        shows=lambda bad, _: bool(bad.run(floats(1))),
    ),
)
