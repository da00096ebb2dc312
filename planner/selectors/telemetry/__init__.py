"""Telemetry added up by arm and fleet."""
