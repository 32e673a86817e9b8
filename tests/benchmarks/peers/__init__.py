"""Other runners beside ours on one job: `python -m tests.benchmarks.peers`."""
