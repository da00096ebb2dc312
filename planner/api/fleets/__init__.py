"""Endpoints of fleets, destinations and policy versions."""
