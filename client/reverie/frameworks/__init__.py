"""Adapters for agent frameworks, each a module that imports its framework; `reverie` itself imports none of them."""
