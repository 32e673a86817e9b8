"""Measurements, run by hand: `python -m tests.benchmarks.NAME`. Speed is judged here and in no test."""
