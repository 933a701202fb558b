"""Policy methods on Markov decision processes small enough to be exact."""
