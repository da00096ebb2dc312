"""Pages of fleets, and the routing table that routers poll."""
