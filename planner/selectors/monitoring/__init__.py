"""Reads of monitor, telemetry age and cool-down; the live page."""
