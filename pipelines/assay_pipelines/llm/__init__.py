"""Calls of language models over HTTP: prompts in files, strict answers, every attempt recorded, nothing paid twice."""
