"""Every kind of job with every feature, on both clusters, with webhooks and controller on."""
