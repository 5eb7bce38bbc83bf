"""Kernels that take turns, look ahead, count from below, or go through views that begin elsewhere."""

from __future__ import annotations

from signal import SIGSEGV

from tests.hostile.areas.element_order import kernel_program
from tests.hostile.machine import floats

__all__ = ["PROGRAMS"]

PROGRAMS = (
    kernel_program(
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
