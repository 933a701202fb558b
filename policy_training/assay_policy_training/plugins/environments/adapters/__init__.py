<<<<<<< HEAD
"""Environments of other projects, run by their published packages, which nothing else needs."""
=======
"""Environments of other projects, as `assay rl` trains in them."""
>>>>>>> 9347f12b (Environments of NeMo-Gym's resource servers and of TRL's environment_factory)
