"""Endpoints of replays."""
