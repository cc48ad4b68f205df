"""The version, apart from the package's own module so that no floor has to import what stands above it."""

__version__ = "0.1.0"
