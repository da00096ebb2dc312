"""Reads of rights, roles and break-glass."""
