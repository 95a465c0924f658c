"""Whatever breaks, no job is lost or admitted twice, no quota exceeded, and nothing stays stuck."""
