"""Recipes: the description of a training, its YAML form, and the recipes that ship with the package."""
