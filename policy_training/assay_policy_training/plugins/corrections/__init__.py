"""S5: corrections for a sampler whose distribution differs from the trainer's."""
