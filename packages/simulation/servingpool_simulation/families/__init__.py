"""Families of synthetic traffic: each stresses a controller in one way that the recorded traces do not.

A family is a function of parameters in physical units and a seed; the same seed gives the same trace.
"""
