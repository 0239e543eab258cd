"""Profile figures tied to source lines: what the IDE's gutter, `kforge profile --lines` and `kforge diff` show."""
