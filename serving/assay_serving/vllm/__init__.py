"""Engines that run a model by vLLM in this process, or behind a vLLM or SGLang server elsewhere.

Conversations become token ids here, by Assay's own renderer, so that templates, truncation and failures are the same
as with the reference engine; the engine gets token ids and gives numbers.
"""
