"""Calibrations of one destination: simulated, imported, and fitted engine constants."""
