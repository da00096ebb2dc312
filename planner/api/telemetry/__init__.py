"""Endpoints of telemetry windows."""
