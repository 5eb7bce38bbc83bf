"""Planning: live ranges, interference, stacking, offsets, guards; and a validator that shares no code
with them.
"""
