"""The long proofs, run by hand: `python -m tests.full NAME`. Their figures are in the files beside them."""
