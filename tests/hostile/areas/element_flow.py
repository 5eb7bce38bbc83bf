"""Kernels whose loops go through elements in orders of their own: rings, scans, trees, tiles, triangles."""

from __future__ import annotations

from tests.hostile.areas.element_order import kernel_program

__all__ = ["PROGRAMS"]

PROGRAMS = (
    kernel_program(
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
        "multiples of 4 modulo 16 are four elements only",
        """
  for i in range(16):
-     b[(i * 4) % 16] = a[i]
+     b[(i * 4) % 16 + i // 4] = a[i]
""",
    ),
    kernel_program(
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
        "an element is made of its child in a heap, which is stored later",
        """
  b[0] = T.float32(0)
  for i in range(15):
-     b[i + 1] = b[(i * 2 + 1) % 16] + a[i]
+     b[i + 1] = b[i // 2] + a[i]
""",
    ),
    kernel_program(
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
)
