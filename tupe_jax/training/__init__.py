"""Pre-training: from rows of tokens to a trained model, and what is told about it on the way."""
