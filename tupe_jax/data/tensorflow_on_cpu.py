"""TensorFlow for input pipelines only: it must not claim the memory of the GPUs that JAX uses."""

import tensorflow as tf

__all__ = ["tf"]

tf.config.set_visible_devices([], "GPU")
