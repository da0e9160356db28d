"""Declare, schedule and record a study."""
