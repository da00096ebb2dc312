"""What every service uses: row and advisory locks, state changes, in-process caches."""
