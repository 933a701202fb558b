"""The demo: the whole house at work on one small problem, every figure measured in the run that shows it.

Covers: the story (`story`), the noisy source it starts from (`source`), what its report says (`pages`). Leaves
out: any skill of its own; each step is a call that a user's own pipeline would make.
"""
