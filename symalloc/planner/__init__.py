"""Planning: live ranges, interference, stacking, offsets, guards; and a validator that shares no packing code
with them.
"""
