"""Pages of fleets, destinations, policy and the start page."""
