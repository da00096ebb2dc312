"""Valid approvals, the inbox, and the review part of a plan page."""
