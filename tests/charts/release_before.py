"""The webhooks of the release before, whose configurations had their former name."""

from importlib import import_module

from policyd.registration import configurations

configurations.NAME = configurations.FORMER_NAME
configurations.FORMER_NAME = "older.policyd.io"

if __name__ == "__main__":
    import_module("webhooks.__main__").main()
