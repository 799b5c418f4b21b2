"""What a run reports: metrics, progress, throughput, loss spikes, profiles."""
