"""What the pages of fleets show, and the routing table that routers poll."""
