"""Workloads: imports of rates and traces, and the requests of replays."""
