"""Data sets, benchmark tables and their files: facts, formats, checks and downloads."""
