"""Evaluating the gate, and the page of its evidence."""
