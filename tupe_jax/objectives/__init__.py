"""Pre-training objectives: the trained module, its loss, and the model that it exports."""
