"""Pre-training: state, optimizer, step, loop, checkpoints, metrics."""
