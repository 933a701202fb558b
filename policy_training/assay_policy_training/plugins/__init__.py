"""Plug-ins of the training loop, one package a slot, and the protocols they implement."""
