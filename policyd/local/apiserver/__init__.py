"""A Kubernetes API server in one process: small, in memory, good enough for an unchanged kubectl.

A request passes through: target and user → kind → handler (read, write, delete, subresource) →
patch, defaults, admission, validation → store → watchers. Objects in the store are never changed in
place: a writer replaces the object, and the identity of the old object is the lock.

Imports `engine`, `patch`, `cel`, `certificates`, `status` and `api`. Start with `server`, then
`requests`.
"""

from policyd.local.apiserver.requests import ApiUser
from policyd.local.apiserver.server import ApiServer, ServerOptions

__all__ = ["ApiServer", "ApiUser", "ServerOptions"]
