"""Tests of the benchmarks: that both sides do the same work. No test decides on a time."""
