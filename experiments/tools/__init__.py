"""Commands that measure a machine: speed, arithmetic, and programs compiled for other devices."""
