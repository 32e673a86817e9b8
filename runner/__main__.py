"""`python -m runner` is the command `overnight`."""

from runner.cli import main

main()
