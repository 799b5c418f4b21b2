"""What a model is trained to do."""
