"""Fleets, their destinations, policy, serving profiles and published tables."""
