"""What the page of an evaluation shows."""
