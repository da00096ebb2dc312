"""Jobs: filing, claiming, cancelling, sweeping, and the registry of job kinds."""
