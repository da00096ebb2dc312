"""Webhooks: configuration, delivery and the HTTP client."""
