"""`python -m assay.cli` is the command `assay`: what torchrun starts in every process."""

from assay.cli.main import main

if __name__ == "__main__":
    main()
