"""Recordings: what a run took from the kernel, and what is made of it again."""
