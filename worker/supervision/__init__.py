"""The supervisor and the processes that it keeps alive, the embedded broker among them."""
