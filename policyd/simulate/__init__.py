"""Virtual time over the allocation core: what cycles would decide, and when. Pure."""
