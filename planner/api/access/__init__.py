"""Endpoints of tokens and break-glass."""
