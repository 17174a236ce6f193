"""What a start does before it reads the first source: choose a manifest, verify it, bring the sinks to it."""
