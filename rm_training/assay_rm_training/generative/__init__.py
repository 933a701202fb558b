"""Training and evaluation of generative reward models: supervised start, reinforcement by the verdict's correctness."""
