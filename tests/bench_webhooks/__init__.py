"""What admission costs at a real API server: natively, by empty webhooks, and by policyd."""
