"""What a user lives through, end to end, on the embedded cluster and on a real one."""
