"""The model: pure Flax NNX, no input or output, no TensorFlow."""
