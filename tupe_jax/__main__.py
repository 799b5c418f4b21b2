"""`python -m tupe_jax` is `tupe`."""

from tupe_jax.cli import entry_point

if __name__ == "__main__":
    entry_point()
