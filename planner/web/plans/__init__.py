"""Pages of plans, orders and explanations."""
