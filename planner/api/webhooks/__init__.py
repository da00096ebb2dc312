"""Endpoints of webhooks and deliveries."""
