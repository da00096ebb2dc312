"""Endpoints, one file a room of the API."""
