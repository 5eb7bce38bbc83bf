"""Entry point of the `symalloc` command and of `python -m symalloc`; answers Ctrl-C during imports, too."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits."""
    try:
        from symalloc.cli.main import main as run
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        sys.exit(130)
    run()


if __name__ == "__main__":
    main()
