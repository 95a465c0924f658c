"""Dispatchers of MultiKueue, compared by the waits of generated loads on three clusters."""
