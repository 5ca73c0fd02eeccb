"""Many prompts at once: read from a file, computed here or on a cluster, gone on with after a crash."""
