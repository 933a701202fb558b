"""Reward models in the forms that other projects publish, read as they lie, without a converted copy.

`adapter`: what a form is; `kind`: the registered ones, and which a checkpoint is of; `checkpoint`: its files;
`heads`: from hidden states to rewards; `steps`: process models' texts; `backbone`: the stock network with its weights;
`classifiers`, `value_heads`, `gated`, `pairs`, `process`: the built-in forms, a family each.
"""
