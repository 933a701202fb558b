"""`python -m assay`: the `assay` command for an environment whose scripts are not on the path."""

from assay.cli.main import main

main()
