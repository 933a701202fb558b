"""S2: samplers, which generate the rollouts."""
