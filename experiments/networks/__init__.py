"""Networks that nothing here was written for, and what their traces give."""
