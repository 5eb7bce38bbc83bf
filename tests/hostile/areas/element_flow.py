"""Kernels whose loops go through elements in orders of their own: rings, scans, trees, tiles, triangles."""

from __future__ import annotations

from tests.hostile.areas.element_order import kernel_program

__all__ = ["PROGRAMS"]

PROGRAMS = (
    kernel_program(
        "ring-of-two",
        "the first pass reads the half of a ring of two that no pass has stored",
        """
  c = T.alloc_buffer((2,), 'float32')
+ c[1] = T.float32(0)
  for i in range(16):
      c[i % 2] = a[i]
      b[i] = c[(i + 1) % 2]
""",
    ),
    kernel_program(
        "element-ahead",
        "odd elements come from the even one behind, which n may not have",
        """
  for i in range((n + 1) // 2):
      b[i * 2] = a[i * 2]
  for i in range(n // 2):
-     b[i * 2 + 1] = b[i * 2 + 2]
+     b[i * 2 + 1] = b[i * 2]
""",
        size=2,
        rule="SYM307",
        severity="warning",
    ),
    kernel_program(
        "transposed-part",
        "a scratch matrix is stored without its last row, and read whole",
        """
  c = T.alloc_buffer((4, 4), 'float32')
- for i, j in T.grid(4, 3):
+ for i, j in T.grid(4, 4):
      c[j, i] = a[i * 4 + j]
  for i in range(16):
      b[i] = c[i // 4, i % 4]
""",
    ),
    kernel_program(
        "choice-before-the-first",
        "a choice that should spare the element before the first one does not",
        """
  for i in range(n):
-     b[i] = T.if_then_else(i >= 0, a[i - 1], T.float32(0))
+     b[i] = T.if_then_else(i > 0, a[i - 1], T.float32(0))
""",
        size=1,
        rule="SYM307",
        verdict="always-invalid",
    ),
    kernel_program(
        "counting-down",
        "a loop that counts down in a buffer leaves the first element out",
        """
  w = T.alloc_buffer((1,), 'int32')
  w[0] = 16
- while w[0] > 1:
+ while w[0] > 0:
      w[0] = w[0] - 1
      b[w[0]] = a[w[0]]
""",
    ),
    kernel_program(
        "scratch-of-each-pass",
        "a scratch that is made in each pass is stored in the first one only",
        """
  for i in range(16):
      c = T.alloc_buffer((1,), 'float32')
-     if i == 0:
-         c[0] = T.float32(0)
+     c[0] = a[i]
      b[i] = c[0]
""",
    ),
    kernel_program(
        "scratch-set-late",
        "a scratch is set in the second pass, and read in the first",
        """
  c = T.alloc_buffer((1,), 'float32')
  for i in range(16):
-     if i == 1:
+     if i == 0:
          c[0] = T.float32(0)
      b[i] = c[0]
""",
    ),
    kernel_program(
        "two-axes-of-a-sum",
        "a predicate leaves out the pass that would set the sum to 0",
        """
  for i, k1, k2 in T.grid(16, 2, 2):
      with T.sblock('s'):
          vi = T.axis.spatial(16, i)
          v1 = T.axis.reduce(2, k1)
          v2 = T.axis.reduce(2, k2)
-         T.where(k1 + k2 > 0)
+         T.where(k1 + k2 < 2)
          with T.init():
              b[vi] = T.float32(0)
          b[vi] = b[vi] + a[vi]
""",
    ),
    kernel_program(
        "sum-from-one",
        "a sum whose axis begins at 1 is only run from 2 on",
        """
- for i, kk in T.grid(16, 3):
+ for i, kk in T.grid(16, 4):
      with T.sblock('s'):
          vi = T.axis.spatial(16, i)
-         v1 = T.axis.reduce((1, 5), kk + 2)
+         v1 = T.axis.reduce((1, 5), kk + 1)
          with T.init():
              b[vi] = T.float32(0)
          b[vi] = b[vi] + a[vi]
""",
    ),
    kernel_program(
        "set-beside",
        "the element that is set to 0 is not the one that sums",
        """
- for i, kk in T.grid(15, 4):
+ for i, kk in T.grid(16, 4):
      with T.sblock('s'):
-         vi = T.axis.spatial(15, i)
+         vi = T.axis.spatial(16, i)
          v1 = T.axis.reduce(4, kk)
          with T.init():
              b[vi] = T.float32(0)
-         b[vi + 1] = b[vi + 1] + a[vi]
+         b[vi] = b[vi] + a[vi]
""",
    ),
    kernel_program(
        "sum-of-the-rest",
        "a sum over the elements behind is set to 0 for the first one only",
        """
  for i, kk in T.grid(n, n):
      with T.sblock('s'):
          vi = T.axis.spatial(n, i)
          v1 = T.axis.reduce(n, kk)
-         T.where(kk >= i)
+         T.where(kk <= i)
          with T.init():
              b[vi] = T.float32(0)
          b[vi] = b[vi] + a[v1]
""",
        size=2,
    ),
    kernel_program(
        "lanes-by-two",
        "two vectors of every second element overlap",
        """
  b[T.Ramp(0, 2, 8)] = a[T.Ramp(0, 1, 8)]
- b[T.Ramp(2, 2, 7)] = a[T.Ramp(8, 1, 7)]
+ b[T.Ramp(1, 2, 8)] = a[T.Ramp(8, 1, 8)]
""",
    ),
    kernel_program(
        "three-of-four-bytes",
        "three of the four bytes of each element are stored",
        """
  d = T.decl_buffer((64,), 'uint8', data=b.data)
- for i, j in T.grid(16, 3):
-     d[i * 4 + j] = T.uint8(1)
+ for i, j in T.grid(16, 4):
+     d[i * 4 + 3 - j] = T.uint8(1)
""",
    ),
    kernel_program(
        "upper-halves",
        "the upper half of the last element is not stored",
        """
  d = T.decl_buffer((n * 2,), 'int16', data=b.data)
  for i in range(n):
      d[i * 2] = T.int16(1)
- for i in range(n - 1):
+ for i in range(n):
      d[i * 2 + 1] = T.int16(1)
""",
        size=1,
        verdict="always-invalid",
    ),
    kernel_program(
        "rows-of-four",
        "rows of four leave the rest of n",
        """
  d = T.decl_buffer((n // 4, 4), 'float32', data=b.data)
  for i, j in T.grid(n // 4, 4):
      d[i, j] = T.float32(1)
+ for i in range(n % 4):
+     b[n - 1 - i] = T.float32(0)
""",
        size=1,
    ),
    kernel_program(
        "strides-with-gaps",
        "strides leave every fourth element out",
        """
- d = T.decl_buffer((4, 3), 'float32', data=b.data, strides=[4, 1])
- for i, j in T.grid(4, 3):
+ d = T.decl_buffer((4, 4), 'float32', data=b.data, strides=[1, 4])
+ for i, j in T.grid(4, 4):
      d[i, j] = a[i * 4 + j]
""",
    ),
    kernel_program(
        "interleaved",
        "every second element is made of its neighbour before that is stored",
        """
  d = T.decl_buffer((8,), 'float32', data=b.data, strides=[2])
  e = T.decl_buffer((8,), 'float32', data=b.data, strides=[2], elem_offset=1)
  for i in range(8):
-     e[i] = d[i]
      d[i] = a[i]
+     e[i] = d[i]
""",
    ),
    kernel_program(
        "lower-triangle",
        "the lower triangle of a scratch is stored, all of it is read",
        """
  c = T.alloc_buffer((4, 4), 'float32')
  for i in range(4):
      for j in range(i + 1):
          c[i, j] = a[j]
+     for j in range(3 - i):
+         c[i, i + 1 + j] = T.float32(0)
  for i, j in T.grid(4, 4):
      b[i * 4 + j] = c[i, j]
""",
    ),
    kernel_program(
        "symmetric",
        "a symmetric scratch lacks its diagonal",
        """
  c = T.alloc_buffer((n, n), 'float32')
  for i in range(n):
-     for j in range(i):
+     for j in range(i + 1):
          c[i, j] = a[j]
          c[j, i] = a[j]
  for i in range(n):
      b[i] = T.float32(0)
      for j in range(n):
          b[i] = b[i] + c[i, j]
""",
        size=1,
        verdict="always-invalid",
    ),
    kernel_program(
        "band",
        "a band of one diagonal more is read than stored",
        """
  c = T.alloc_buffer((4, 4), 'float32')
  for i, j in T.grid(4, 4):
      if i - j <= 1 and j - i <= 1:
          c[i, j] = a[j]
  for i, j in T.grid(4, 4):
-     if i - j <= 2 and j - i <= 1:
+     if i - j <= 1 and j - i <= 1:
          b[i * 4 + j] = c[i, j]
      else:
          b[i * 4 + j] = T.float32(0)
""",
    ),
    kernel_program(
        "multiples",
        "multiples of 4 modulo 16 are four elements only",
        """
  for i in range(16):
-     b[(i * 4) % 16] = a[i]
+     b[(i * 4) % 16 + i // 4] = a[i]
""",
    ),
    kernel_program(
        "doubling-steps",
        "a scan by doubling steps stores only what has a neighbour",
        """
  c = T.alloc_buffer((16,), 'float32')
  d = T.alloc_buffer((16,), 'float32')
  for i in range(16):
      c[i] = a[i]
  for s in range(4):
      for i in range(16):
          if i >= T.shift_left(1, s):
              d[i] = c[i] + c[i - T.shift_left(1, s)]
+         else:
+             d[i] = c[i]
      for i in range(16):
          c[i] = d[i]
  for i in range(16):
      b[i] = c[i]
""",
    ),
    kernel_program(
        "tree-of-sums",
        "a tree of sums takes one term too many",
        """
  c = T.alloc_buffer((16,), 'float32')
  for i in range(16):
      c[i] = a[i]
  for s in range(4):
-     for i in range(T.shift_right(8, s) + 1):
+     for i in range(T.shift_right(8, s)):
          c[i] = c[i] + c[i + T.shift_right(8, s)]
  for i in range(16):
      b[i] = c[0]
""",
        rule="SYM307",
    ),
    kernel_program(
        "children-of-a-heap",
        "an element is made of its child in a heap, which is stored later",
        """
  b[0] = T.float32(0)
  for i in range(15):
-     b[i + 1] = b[(i * 2 + 1) % 16] + a[i]
+     b[i + 1] = b[i // 2] + a[i]
""",
    ),
    kernel_program(
        "two-before",
        "each element is the sum of the two before; the second was never set",
        """
  b[0] = T.float32(0)
+ b[1] = T.float32(0)
  for i in range(14):
      b[i + 2] = b[i] + b[i + 1]
""",
    ),
    kernel_program(
        "two-before-of-one",
        "the second element is set although n may be 1",
        """
  if n > 0:
      b[0] = T.float32(0)
- b[1] = T.float32(0)
+ if n > 1:
+     b[1] = T.float32(0)
  for i in range(n - 2):
      b[i + 2] = b[i] + b[i + 1]
""",
        size=1,
        rule="SYM306",
    ),
    kernel_program(
        "row-of-pascal",
        "a triangle is summed in a row that was not set to 0",
        """
- b[0] = T.float32(1)
  for i in range(16):
+     b[i] = T.float32(0)
+ for i in range(16):
      for j in range(i):
          b[i - j] = b[i - j] + b[i - j - 1]
""",
    ),
    kernel_program(
        "sieve",
        "a sieve goes one multiple too far",
        """
  for i in range(16):
      b[i] = T.float32(1)
  for p in range(14):
      for m in range(14):
-         if (p + 2) * (m + 2) <= 16:
+         if (p + 2) * (m + 2) < 16:
              b[(p + 2) * (m + 2)] = T.float32(0)
""",
        rule="SYM306",
    ),
    kernel_program(
        "padding",
        "one of two elements of padding is not set",
        """
  c = T.alloc_buffer((n + 2,), 'float32')
  c[0] = T.float32(0)
+ c[n + 1] = T.float32(0)
  for i in range(n):
      c[i + 1] = a[i]
  for i in range(n):
      b[i] = T.float32(0)
      for d in range(3):
          b[i] = b[i] + c[i + d]
""",
        size=1,
        verdict="always-invalid",
    ),
    kernel_program(
        "windows",
        "windows are stored as far as they lie inside, and read whole",
        """
  c = T.alloc_buffer((n * 3,), 'float32')
  for i, d in T.grid(n, 3):
-     if i + d >= 1 and i + d <= n:
-         c[i * 3 + d] = a[i + d - 1]
+     c[i * 3 + d] = T.if_then_else(i + d >= 1 and i + d <= n, a[i + d - 1], T.float32(0))
  for i in range(n):
      b[i] = T.float32(0)
      for d in range(3):
          b[i] = b[i] + c[i * 3 + d]
""",
        size=1,
        verdict="always-invalid",
    ),
    kernel_program(
        "wave",
        "the first row that a wave begins with is not set",
        """
  c = T.alloc_buffer((5, 5), 'float32')
- for i in range(4):
-     c[i + 1, 0] = T.float32(0)
+ for i in range(5):
+     c[0, i] = T.float32(0)
+     c[i, 0] = T.float32(0)
  for i, j in T.grid(4, 4):
      c[i + 1, j + 1] = c[i, j + 1] + c[i + 1, j] + c[i, j]
      b[i * 4 + j] = c[i + 1, j + 1]
""",
    ),
    kernel_program(
        "columns-of-tiles",
        "a scan goes through tiles column by column",
        """
  b[0] = a[0]
- for j, o in T.grid(4, 4):
+ for o, j in T.grid(4, 4):
      if o * 4 + j > 0:
          b[o * 4 + j] = b[o * 4 + j - 1] + a[o * 4 + j]
""",
    ),
    kernel_program(
        "left-in-the-last",
        "what a loop that is left leaves out is stored for all rows but the last",
        """
  for o in range(4):
      for j in range(4):
          if j == 3:
              break
          b[o * 4 + j] = T.float32(1)
-     if o < 3:
-         b[o * 4 + 3] = T.float32(2)
+     b[o * 4 + 3] = T.float32(2)
""",
    ),
    kernel_program(
        "steps-of-three",
        "steps of three from 0 and 1 leave the third",
        """
- for i in T.serial(0, n, step=3):
+ for i in T.serial(0, n, step=2):
      b[i] = a[i]
- for i in T.serial(1, n, step=3):
+ for i in T.serial(1, n, step=2):
      b[i] = a[i]
""",
        size=3,
    ),
    kernel_program(
        "split-at-four",
        "a loop is split at 4 and goes on at 5",
        """
  for i in range(T.min(n, 4)):
      b[i] = a[i]
- for i in range(T.max(n - 5, 0)):
-     b[i + 5] = a[i + 5]
+ for i in range(T.max(n - 4, 0)):
+     b[i + 4] = a[i + 4]
""",
        size=5,
    ),
    kernel_program(
        "either-or",
        "two tests leave out the element between them",
        """
  for i in range(16):
-     if i < 4 or i > 8:
+     if i < 4 or i >= 8:
          b[i] = a[i]
      if i >= 4 and i < 8:
          b[i] = T.float32(0)
""",
    ),
    kernel_program(
        "lanes-read-first",
        "lanes read their neighbours before any lane has stored",
        """
- b[0] = a[0]
- for v in T.vectorized(15):
-     b[v + 1] = b[v]
+ for v in T.vectorized(4):
+     b[v] = a[v]
+ for o in range(3):
+     for v in T.vectorized(4):
+         b[o * 4 + 4 + v] = b[o * 4 + v]
""",
    ),
    kernel_program(
        "from-both-ends",
        "two halves from both ends miss the middle of an odd n",
        """
- for i in range(n // 2):
+ for i in range((n + 1) // 2):
      b[i] = a[i]
      b[n - 1 - i] = a[i]
""",
        size=1,
    ),
    kernel_program(
        "doubled-prefix",
        "each step copies what is stored to a place one further than it should",
        """
  b[0] = a[0]
  for s in range(4):
      for i in range(T.shift_left(1, s)):
-         b[T.shift_left(2, s) + i - 1] = b[i]
+         b[T.shift_left(1, s) + i] = b[i]
""",
        rule="SYM306",
    ),
    kernel_program(
        "pairs",
        "the two parts of n overlap by one where n is odd",
        """
  for i in range(n):
      b[i // 2] = a[i]
  for i in range(n // 2):
-     b[n // 2 + i] = a[i]
+     b[(n + 1) // 2 + i] = a[i]
""",
        size=3,
    ),
    kernel_program(
        "clamped",
        "an index is clamped to n, which is one too many",
        """
  for i in range(n + 4):
-     b[T.min(i, n)] = T.float32(1)
+     if n > 0:
+         b[T.min(i, n - 1)] = T.float32(1)
""",
        size=1,
        rule="SYM306",
        verdict="always-invalid",
    ),
    kernel_program(
        "doubles-over-floats",
        "doubles over an odd number of floats reach past the last",
        """
- d = T.decl_buffer(((n + 1) // 2,), 'float64', data=b.data)
- for i in range((n + 1) // 2):
+ d = T.decl_buffer((n // 2,), 'float64', data=b.data)
+ for i in range(n // 2):
      d[i] = T.float64(1)
+ if n % 2 == 1:
+     b[n - 1] = T.float32(0)
""",
        size=1,
        rule="SYM306",
    ),
    kernel_program(
        "number-from-the-end",
        "a number counts from the end, one too far",
        """
  for i in range(n):
-     x: T.int64 = n - i
+     x: T.int64 = n - 1 - i
      b[x] = a[i]
""",
        size=1,
        rule="SYM306",
        verdict="always-invalid",
        also=frozenset(["SYM208"]),
    ),
    kernel_program(
        "loop-from-below",
        "a loop begins below 0, and its test lets -1 through",
        """
  for i in range(-4, n):
-     if i >= -1:
-         b[i] = T.float32(1)
+     if i >= 0:
+         b[i] = a[i]
""",
        size=1,
        rule="SYM306",
        verdict="always-invalid",
    ),
)
