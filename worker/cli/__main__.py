"""`python -m worker.cli`: how the supervisor starts the processes of Reverie."""

from worker.cli import main

main()
