"""What changes things; one function a use case.

Every transition has the same shape, in one transaction: lock the row, check again under the lock, change,
write the audit event, and file the task for after the commit.
"""
