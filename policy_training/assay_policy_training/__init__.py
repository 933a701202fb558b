"""Policy training against served rewards: rollouts, advantages, objectives, the loop, recipes."""
