"""Pages of sign-in, accounts, roles, tokens and break-glass."""
