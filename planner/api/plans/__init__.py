"""Endpoints of plans, explanations and studies."""
