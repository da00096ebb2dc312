"""Endpoints of rollouts, freezes and blast radius."""
