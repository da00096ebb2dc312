"""Endpoints of gate evaluations."""
