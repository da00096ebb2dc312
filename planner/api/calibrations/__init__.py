"""Endpoints of calibrations."""
