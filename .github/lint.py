"""The step of action.yml that lints: annotations on standard output, SARIF in a file, the status as output.

PATHS and ARGS are split as a shell would; SARIF is the file, or empty.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path


def main() -> None:
    """Lint, and hand the exit status on: the step itself succeeds, so that SARIF is uploaded."""
    given = [*shlex.split(os.environ["PATHS"]), *shlex.split(os.environ.get("ARGS", ""))]
    lint = [sys.executable, "-m", "symalloc", "lint", *given]
    status = subprocess.run([*lint, "--format", "github"], check=False).returncode
    sarif = os.environ.get("SARIF", "")
    if sarif:
        subprocess.run([*lint, "--format", "sarif", "--quiet", "-o", sarif], check=False)
    with Path(os.environ["GITHUB_OUTPUT"]).open("a", encoding="utf-8") as outputs:
        outputs.write(f"status={status}\n")


if __name__ == "__main__":
    main()
