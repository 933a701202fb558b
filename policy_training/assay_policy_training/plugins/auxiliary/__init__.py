"""S11: losses added to the policy's."""
