"""The demonstration of `make demo`: a fault, a planned model, a module on which TVM segfaults, and the pool.

Every command is printed before its output.  The exit status is 0 only if each command behaves as expected.
"""

from __future__ import annotations

import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = Path("build")
MODEL, PLANNED = BUILD / "llama.json", BUILD / "llama_planned.json"
# the programs of the environment that runs this script
PROGRAMS = {"symalloc": str(Path(sys.executable).with_name("symalloc")), "python": sys.executable}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A command, with its expected exit status and words that its output must contain."""

    command: str
    status: int = 0
    shows: tuple[str, ...] = ()
    quiet_errors: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chapter:
    """Some steps with a heading and an introduction."""

    title: str
    text: str
    steps: tuple[Step, ...]


def chapters() -> tuple[Chapter, ...]:
    """Return the chapters of the demonstration."""
    bit_for_bit = ("bit for bit",)
    return (
        Chapter(
            title="1. A fault that TVM hides until m = 1025",
            text="apache/tvm#17322: 16 bytes are reserved for a tensor of m floats.",
            steps=(
                Step(command="symalloc lint examples/issue_17322.py", status=1, shows=("SYM101", "m = 5")),
            ),
        ),
        Chapter(
            title="2. A Llama-style decoder over any number of tokens, planned and run",
            text="One arena: its size and offsets are formulas in n, proved for every n.",
            steps=(
                Step(command=f"python examples/llama.py {MODEL}"),
                Step(
                    command=f"symalloc plan {MODEL} --pipeline target --compare tvm -o {PLANNED}",
                    shows=("arena / floor               1.000", "TVM, no bounds", "linted"),
                ),
                *(
                    Step(
                        command=f"symalloc run {MODEL} --pipeline target --bind n={n} --check",
                        shows=bit_for_bit,
                    )
                    for n in (1, 33)
                ),
            ),
        ),
        Chapter(
            title="3. A module on which TVM's default pipeline segfaults",
            text="apache/tvm#20191: TVM's planner lets one branch use memory that only the other one reserves.",
            steps=(
                Step(
                    command="python examples/run_with_tvm.py examples/branches.py n=32",
                    status=-signal.SIGSEGV,
                    quiet_errors=True,
                ),
                Step(
                    command="symalloc lint examples/branches.py",
                    status=1,
                    shows=("SYM204", "StaticPlanBlockMemory"),
                ),
                *(
                    Step(command=f"symalloc run examples/branches.py --bind n={n} --check", shows=bit_for_bit)
                    for n in (8, 32)
                ),
            ),
        ),
        Chapter(
            title="4. A pool whose reserved memory stays close to the live memory",
            text="A program at seven lengths, on both pools. Then the fault of chapter 1 at run time.",
            steps=(
                Step(
                    command="symalloc run examples/mlp.py --sweep n=100..1000:150 --pool --compare tvm",
                    shows=("reserved, ours / TVM's",),
                ),
                Step(
                    command="symalloc run examples/issue_17322.py --bind m=5 --plan none --pool",
                    status=1,
                    shows=("main.alloc", "needs 20 bytes"),
                ),
            ),
        ),
    )


def ending(status: int) -> str:
    """Describe how the process ended; empty for exit status 0."""
    if status < 0:
        return f"[killed by {signal.Signals(-status).name}]"
    return f"[exit status {status}]" if status else ""


def run(step: Step) -> bool:
    """Print the command, run it and print its output.  Return whether it behaved as expected."""
    print(f"$ {step.command}", flush=True)
    program, *arguments = shlex.split(step.command)
    errors = subprocess.DEVNULL if step.quiet_errors else subprocess.STDOUT
    done = subprocess.run(
        [PROGRAMS[program], *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        check=False,
    )
    print(done.stdout, end="")
    print(ending(done.returncode), end="\n\n" if done.returncode else "\n", flush=True)
    missing = [words for words in step.shows if words not in done.stdout]
    if done.returncode != step.status:
        print(f"demo: expected {ending(step.status) or '[exit status 0]'}")
    for words in missing:
        print(f"demo: expected the output to contain {words!r}")
    return done.returncode == step.status and not missing


def main() -> int:
    """Run all chapters to the end.  Return 0 if every step behaved as expected."""
    right = True
    (ROOT / BUILD).mkdir(exist_ok=True)
    for chapter in chapters():
        print(f"{chapter.title}\n{'-' * len(chapter.title)}\n{chapter.text}\n", flush=True)
        right = all([run(step) for step in chapter.steps]) and right
    print("Everything behaved as expected." if right else "demo: some steps failed, see above.")
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
