"""Whether a training fits: its real step on fake tensors, cards, an estimate of its speed."""
