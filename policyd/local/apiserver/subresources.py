"""The subresources that are not the object itself: scale, binding, eviction, log, finalize."""
