"""Planning: live ranges, interference, stacking, offsets, guards; and a validator that shares only the prover
with them.
"""
