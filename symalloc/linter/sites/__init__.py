"""Where rules ask: one file for each kind of site or small family of kinds."""
