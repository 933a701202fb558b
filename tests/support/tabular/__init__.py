"""Policy methods on Markov decision processes small enough to be exact: what the theory says, seen in numbers.

Links to the trainer: the trust region of PPO is the distance term of mirror descent; a k2 loss is the local KL of the
natural gradient; the dense KL to a teacher is the direction of the entropy-regularised natural gradient with the
teacher as prior.
"""
