"""``beamsieve demo``: the whole way, from item vectors to recommendations, on a made-up world."""

from beamsieve.demo.run import run_demo

__all__ = ["run_demo"]
