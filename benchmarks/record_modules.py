"""Record the Relax modules that a test suite makes: TVM's own, say.

    python -m benchmarks.record_modules OUT [PYTEST ARGUMENTS…]

Runs pytest and keeps every module that a test parses, imports or hands to a pass or to relax.build, as
gzipped JSON in OUT; one that is structurally equal to another is kept once.  `benchmarks.lint_modules` lints
what is there.
"""

from __future__ import annotations

import gzip
import re
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
import tvm
import tvm_ffi
from tvm import relax

MOST_PER_FILE = 40
MOST_BYTES = 2_000_000


class Recorder:
    """Keeps modules; a pytest plugin."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.seen, self.test = folder, set[int](), "setup"
        self.per_file: Counter[str] = Counter()

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Note which test runs."""
        self.test = re.sub(r"\W+", "_", f"{Path(str(item.path)).stem}__{item.name}")[:120]

    def keep(self, mod: Any) -> None:
        """Keep `mod`, if it is a module with a Relax function that was not seen before."""
        if not isinstance(mod, tvm.IRModule):
            return
        if not any(isinstance(f, relax.Function) for _, f in mod.functions_items()):
            return
        file = self.test.split("__")[0]
        if self.per_file[file] >= MOST_PER_FILE:
            return
        try:
            key = int(tvm_ffi.structural_hash(mod))
            text = tvm.ir.save_json(mod) if key not in self.seen else ""
        except Exception:  # a test may make what TVM itself cannot write
            return
        self.seen.add(key)
        if text and len(text) < MOST_BYTES:
            self.per_file[file] += 1
            name = f"{self.test}__{self.per_file[file]}.json.gz"
            (self.folder / name).write_bytes(gzip.compress(text.encode(), mtime=0))


def _hooked(recorder: Recorder, function: Callable[..., Any], *, result: bool) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if result:
            made = function(*arguments, **named)
            recorder.keep(made)
            return made
        for argument in arguments:
            recorder.keep(argument)
        return function(*arguments, **named)

    return call


@click.command()
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.argument("arguments", nargs=-1)
def main(out: Path, arguments: tuple[str, ...]) -> None:
    """Run pytest with ARGUMENTS and record modules in OUT."""
    out.mkdir(parents=True, exist_ok=True)
    recorder = Recorder(out)
    for holder in (tvm.transform.Pass, tvm.ir.transform.Pass):
        holder.__call__ = _hooked(recorder, holder.__call__, result=False)
    for holder in (relax, tvm):
        for name in ("build", "compile"):
            if hasattr(holder, name):
                setattr(holder, name, _hooked(recorder, getattr(holder, name), result=False))
    pytest.main([*arguments, "-q", "--tb=no", "-p", "no:cacheprovider"], plugins=[recorder])
    print(f"{sum(recorder.per_file.values())} modules of {len(recorder.per_file)} files in {out}")


if __name__ == "__main__":
    sys.exit(main())
