"""Load a trained model and use it: fill masks, score, encode and classify texts."""
