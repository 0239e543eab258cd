"""The command line: one module a command, imported light; heavy packages are imported when a command runs."""
