"""The library's calls: score, rank, correlate, look up."""
