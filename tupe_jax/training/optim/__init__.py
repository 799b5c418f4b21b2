"""Optimizers, parameter groups and the learning-rate schedule."""
