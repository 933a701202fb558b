"""Engines that run a model by vLLM in this process, or on a vLLM or SGLang server.

Assay's own renderer turns conversations into token ids, so that templates, truncation and failures are the same as with
the reference engine; the engine takes token ids and returns numbers.
"""
