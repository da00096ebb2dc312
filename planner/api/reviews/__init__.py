"""Endpoints of approvals, waivers and the inbox."""
