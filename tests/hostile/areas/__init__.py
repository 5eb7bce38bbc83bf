"""The hostile programs, area by area; every module holds `PROGRAMS`."""
