"""What is measured, runnable: each module is one benchmark with one command (see README.md here)."""
