"""Other formats: released TUPE checkpoints, Hugging Face's layout, model folders."""
