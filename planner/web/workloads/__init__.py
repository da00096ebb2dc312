"""Pages of workloads."""
