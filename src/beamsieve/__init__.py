"""Constrained decoding for generative retrieval, filter-first."""
