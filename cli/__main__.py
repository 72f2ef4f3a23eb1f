"""`python -m cli`: how the supervisor starts the processes of Reverie."""

from cli import main

main()
