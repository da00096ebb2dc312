"""What all endpoints share: authentication, permissions, errors, ETags, pagination, schema."""
