"""Telemetry windows: validation, storage, and simulated traffic."""
