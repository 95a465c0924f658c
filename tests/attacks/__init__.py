"""What a tenant, a policy author, or a neighbour on the network may try, and what came of it."""
