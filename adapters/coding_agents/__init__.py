"""The configuration files of coding agents, into which `reverie connect` writes its entries and nothing else."""
