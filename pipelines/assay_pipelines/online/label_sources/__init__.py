"""Who labels the pairs that a selector picks: programs, judges, reward models, people."""
