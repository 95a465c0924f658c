"""Ways of changing an object: drafts, JSON patch, merge patch, strategic merge, apply. Pure."""
