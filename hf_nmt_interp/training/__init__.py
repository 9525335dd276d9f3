"""Training: losses as pure functions, a config and a trainer per objective."""
