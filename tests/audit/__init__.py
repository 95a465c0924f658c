"""Whether what we depend on has known holes, by the advisories that the repository keeps."""
