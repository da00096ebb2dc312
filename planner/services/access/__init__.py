"""Services for accounts, roles, tokens and break-glass."""
