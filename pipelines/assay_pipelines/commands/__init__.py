"""Sub-commands of the `assay` command that this part brings, a module per noun. Heavy imports happen inside them."""
