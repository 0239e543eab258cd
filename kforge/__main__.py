"""`python -m kforge` is the command `kforge`."""

from kforge.cli.main import main

if __name__ == "__main__":
    main()
