"""Pre-training objectives: what a module is trained to do, and what is exported of it."""
