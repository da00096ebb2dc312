"""Endpoints of the audit trail."""
