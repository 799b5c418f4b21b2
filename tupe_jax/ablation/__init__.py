"""Ablations: variants x seeds, pre-trained, fine-tuned, measured and compared; `tupe ablate`."""
