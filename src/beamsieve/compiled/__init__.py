"""Loops over millions of rows, compiled by Numba where it is installed.

What they make is, byte for byte, what NumPy's passes make, which stay for everybody else: a
compiled loop reads its rows once where they read them a dozen times, and asks for the interpreter's
lock once where they wait for it between any two passes, which is what many threads wait for.

Nothing but ``choice`` may be imported where Numba is missing. Every argument's type is fixed, so
that each loop is compiled once; arrays that are only read may be read-only and unaligned, as those
of a mapped file are.
"""
