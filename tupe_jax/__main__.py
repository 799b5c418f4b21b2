"""`python -m tupe_jax` is `tupe`."""

import sys

from tupe_jax.cli import main

if __name__ == "__main__":
    sys.exit(main())
