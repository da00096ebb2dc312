"""Accounts, roles, tokens and break-glass: what changes them."""
