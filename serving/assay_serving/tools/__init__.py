"""Tools that a model may call before it answers: a calculator, search over documents, Python programs."""
