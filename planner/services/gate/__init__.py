"""Collecting evidence and evaluating the gate."""
