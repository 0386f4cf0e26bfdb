"""``python -m xtrace``."""

from xtrace.cli.main import main

if __name__ == "__main__":
    main()
