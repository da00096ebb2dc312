"""Shared by all services: row and advisory locks, state changes, in-process caches."""
