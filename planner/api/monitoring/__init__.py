"""Endpoints of drift checks."""
