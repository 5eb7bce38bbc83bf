"""The judgement of a finished plan.  Shares no code with the rest of planning but its types."""
