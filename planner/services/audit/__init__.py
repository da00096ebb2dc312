"""The audit trail: recording events, verifying the chain, exporting it."""
