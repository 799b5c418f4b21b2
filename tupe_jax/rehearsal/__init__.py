"""A rehearsal of a run on a pod: checks before accelerators are allocated."""
