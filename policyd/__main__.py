"""`python -m policyd`: the command line."""

from policyd.cli import main

if __name__ == "__main__":
    main()
