"""Fine-tuning: tasks, metrics, the paper's GLUE protocol."""
