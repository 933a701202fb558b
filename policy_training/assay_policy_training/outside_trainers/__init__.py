"""Our environments in other projects' trainers and agents: they generate the turns, we observe and reward."""
