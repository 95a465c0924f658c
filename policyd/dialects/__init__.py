"""Read the policies and tests of other engines: Kyverno, Gatekeeper and kat.

The engine imports none of them. `registry` lists the formats whose policies it is to read, as
values that commands and webhooks load policies with. Imports `engine` and `cel`. Of the product,
only `cli` and `webhooks` import from here. Start with `registry`, then `kyverno/load`.
"""
