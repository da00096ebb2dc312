"""Endpoints of workloads."""
