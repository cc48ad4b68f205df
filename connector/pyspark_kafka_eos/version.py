"""The version, in a module of its own so that lower packages need not import the top one."""

__version__ = "0.1.0"
