"""The steps of a chain: one component at work in one instance."""
