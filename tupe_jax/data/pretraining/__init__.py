"""Text for pre-training: sources, cleaning, packing, preparation, readers."""
