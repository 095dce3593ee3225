"""The DARTS cells that Tiny-RobustBench trained, and what carries over from NAS-Bench-201."""
