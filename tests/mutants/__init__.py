"""Small changes of the product, each of which some test should find: how strong the fast tests are.

This is a script of ours, as cosmic-ray and mutmut change Python only, not the kernels, leave out no calls, do not draw
by a seed, and know nothing of what other processes of a test run.
"""
