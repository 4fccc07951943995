"""What engines are tested with, also those of third parties; needs no test framework."""
