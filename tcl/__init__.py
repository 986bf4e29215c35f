"""Learned cost models of tensor programs: measure, sample, train, distil across platforms, tune, and look at it."""

__version__ = "0.1.0"
