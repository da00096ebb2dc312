"""Pages of the audit trail and the timeline."""
