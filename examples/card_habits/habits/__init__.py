"""Fraud detection that knows the habits of each card, as a batch run computes them."""
