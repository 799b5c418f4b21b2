"""The `tupe` commands, one module each."""
