"""Long work that the pages start: `assay` commands as processes of their own, their settings, progress and outcome."""
